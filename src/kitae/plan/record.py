"""How plans have done: each training's predictions against what came of them, and the families' summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from kitae.plan.history import Entry, Key
from kitae.plan.learning import Learned
from kitae.plan.local import Local

QUANTITIES = (
    *("step_s", "tokens_per_s", "memory_bytes", "evaluate_s", "checkpoint_s", "checkpoint_bytes"),
    "start_s",
)


@dataclass(frozen=True)
class Held:
    """One quantity of one training."""

    predicted: float | None
    actual: float | None

    @property
    def error(self) -> float | None:
        """Of the prediction, as a share of what came."""
        if not self.predicted or not self.actual:
            return None
        return self.predicted / self.actual - 1


@dataclass(frozen=True)
class Family:
    """What the trainings of one family, precision and number of processes have shown here."""

    key: Key
    trainings: int
    mean_error: float | None
    """Of predicted step times, sizes of errors alone."""
    inside: int
    """How many lay in their interval."""
    foreseen: int
    """How many had one."""
    learned: Learned | None
    """What plans are multiplied by now; None where the machine is not this one, or not calibrated."""


def held(entry: Entry) -> dict[str, Held]:
    """By quantity."""
    return {name: Held(entry.predicted.get(name), entry.actual.get(name)) for name in QUANTITIES}


def is_inside(entry: Entry) -> bool | None:
    """Whether the step time lay in its interval; None where there was none."""
    low, high = entry.predicted.get("step_s_low"), entry.predicted.get("step_s_high")
    actual = entry.actual.get("step_s")
    if low is None or high is None or actual is None:
        return None
    return low <= actual <= high


def families(entries: Sequence[Entry], local: Local | None) -> list[Family]:
    """One for each key, in the order of their first trainings."""
    keys = dict.fromkeys(entry.key for entry in entries)
    return [_family(key, [entry for entry in entries if entry.key == key], local) for key in keys]


def _family(key: Key, entries: Sequence[Entry], local: Local | None) -> Family:
    errors = [
        found.error for found in (held(entry)["step_s"] for entry in entries) if found.error is not None
    ]
    inside = [found for found in map(is_inside, entries) if found is not None]
    known = local is not None and local.calibration.machine.key == key.machine
    return Family(
        key=key,
        trainings=len(entries),
        mean_error=fmean(map(abs, errors)) if errors else None,
        inside=sum(inside),
        foreseen=len(inside),
        learned=local.learned(key) if local is not None and known else None,
    )
