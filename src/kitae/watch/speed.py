"""How fast a training is: means over its last updates, without those that warm up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from kitae.watch.reading import Columns

LAST = 100
"""Updates that a mean is of, as in `kitae ps`."""


@dataclass(frozen=True)
class Speed:
    """None for what nothing tells."""

    tokens_per_s: float | None = None
    """Of all devices together, padding counted."""
    real_tokens_per_s: float | None = None
    """Padding left out."""
    tokens_per_s_per_device: float | None = None
    utilisation: float | None = None
    """Share of the peak, 0 to 1, that model arithmetic makes use of."""
    step_seconds: float | None = None


def speed_of(train: Columns, last: int = LAST) -> Speed:
    """Of the last updates."""
    among = range(max(0, len(train) - last), len(train))
    steady = [index for index in among if train.first_step[index] != 1] or list(among)
    seconds = [train.step_seconds[index] for index in steady]
    if not sum(seconds) > 0:
        return Speed()
    return Speed(
        tokens_per_s=_known(sum(train.padded_tokens[index] for index in steady) / sum(seconds)),
        real_tokens_per_s=_known(sum(train.real_tokens[index] for index in steady) / sum(seconds)),
        tokens_per_s_per_device=_over(train.tokens_per_s_per_device, steady, seconds),
        utilisation=_over(train.utilisation, steady, seconds),
        step_seconds=sum(seconds) / len(seconds),
    )


def _over(values: Sequence[float], places: Sequence[int], seconds: Sequence[float]) -> float | None:
    """The mean over time, of a rate."""
    return _known(sum(values[at] * long for at, long in zip(places, seconds, strict=True)) / sum(seconds))


def _known(value: float) -> float | None:
    return value if isfinite(value) else None
