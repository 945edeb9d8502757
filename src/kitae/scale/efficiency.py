"""Speed-up, efficiency and serial fraction, as pure functions of rates.

With rates X of the smallest width b and of a width w = p b, the speed-up is S = X_w / X_b and the efficiency
E = S / p, in strong and in weak scaling alike. The serial fraction of one width is that of Karp and Flatt
(1990) in strong scaling, (1/S - 1/p) / (1 - 1/p), and in weak scaling Gustafson's (1988), (p - S) / (p - 1):
of the time on the smallest width, whatever that is. One for all widths is fitted by least squares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from kitae.scale.measured import Measured
from kitae.scale.share import Kind


@dataclass(frozen=True)
class Spread:
    """A number that was measured several times."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(median(values), min(values), max(values))

    def through(self, function: Callable[[float], float]) -> Spread:
        """What a monotonous function makes of it."""
        ends = function(self.low), function(self.high)
        return Spread(function(self.median), min(ends), max(ends))


@dataclass(frozen=True)
class Fit:
    """One serial fraction for all widths."""

    law: str
    """Amdahl or Gustafson."""
    serial_fraction: float
    standard_error: float | None
    """Of the fit; None with one point."""
    points: int

    def efficiency(self, ratio: float) -> float:
        """What the law says for so many times the smallest width."""
        lost = self.serial_fraction * (ratio - 1)
        return 1 / (1 + lost) if self.law == LAWS["strong"] else 1 - lost / ratio


LAWS: dict[Kind, str] = {"strong": "Amdahl", "weak": "Gustafson"}


def efficiency(base: Sequence[Measured], wide: Sequence[Measured]) -> Spread:
    """Of a width against the smallest one: round by round where both have the same rounds."""
    pairs = paired(base, wide)
    if pairs:
        return Spread.of(pairs)
    ratio = wide[0].width / base[0].width
    lower, upper = Spread.of([one.rate for one in base]), Spread.of([one.rate for one in wide])
    return Spread(
        upper.median / lower.median / ratio, upper.low / lower.high / ratio, upper.high / lower.low / ratio
    )


def paired(base: Sequence[Measured], wide: Sequence[Measured]) -> list[float]:
    """Efficiencies of the rounds that both widths have."""
    by_round = {one.round: one for one in base}
    return [
        one.rate / by_round[one.round].rate * by_round[one.round].width / one.width
        for one in wide
        if one.round in by_round
    ]


def serial_fraction(kind: Kind, reached: float, ratio: float) -> float:
    """That an efficiency at `ratio` times the smallest width means; below 0 where it is more than 1."""
    if kind == "strong":
        return (1 / reached - 1) / (ratio - 1)
    return ratio * (1 - reached) / (ratio - 1)


def fit(kind: Kind, points: Sequence[tuple[float, float]]) -> Fit | None:
    """The serial fraction of all (ratio, efficiency); None where there is no ratio above 1.

    Both laws are lines through the origin over x = 1 - 1/p: 1/S - 1/p = s x, and 1 - E = s x.
    """
    lines = [(1 - 1 / ratio, _lost(kind, ratio, reached)) for ratio, reached in points if ratio > 1]
    if not lines:
        return None
    square = sum(x * x for x, _ in lines)
    slope = sum(x * y for x, y in lines) / square
    left = sum((y - slope * x) ** 2 for x, y in lines)
    error = math.sqrt(left / (len(lines) - 1) / square) if len(lines) > 1 else None
    return Fit(LAWS[kind], slope, error, len(lines))


def _lost(kind: Kind, ratio: float, reached: float) -> float:
    return (1 / reached - 1) / ratio if kind == "strong" else 1 - reached


def points_of(widths: Mapping[int, Sequence[Measured]]) -> list[tuple[float, float]]:
    """(Ratio, efficiency) of all that was measured above the smallest width, round by round."""
    first, *others = sorted(widths)
    found: list[tuple[float, float]] = []
    for width in others:
        values = paired(widths[first], widths[width]) or [efficiency(widths[first], widths[width]).median]
        found += [(width / first, value) for value in values]
    return found


TOLERANCES = {"fp32": 1e-4, "autocast": 2e-2, "bf16": 2e-2, "bf16-sr": 2e-2}
"""How far losses and gradient norms may be apart, relatively: other orders of sums change the last digits."""
COMPARED = 5
"""Updates that are compared: in later ones the last digits may have grown into more by themselves."""


def difference(base: Sequence[Measured], wide: Sequence[Measured]) -> float | None:
    """Largest relative one of losses and gradient norms in the first updates; None where nothing is known."""
    found = [
        _apart(known)
        for name in ("losses", "grad_norms")
        if len(known := [series for one in (*base, *wide) if (series := getattr(one, name))]) > 1
    ]
    return max(found, default=None)


def _apart(series: Sequence[Sequence[float]]) -> float:
    """From the first of the series."""
    first = series[0][:COMPARED]
    pairs = (pair for other in series[1:] for pair in zip(first, other, strict=False))
    return max((abs(one - other) / max(abs(one), 1e-12) for one, other in pairs), default=0.0)
