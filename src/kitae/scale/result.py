"""All that a scaling measurement shows, as the JSON of `scale.json` (docs/verbs/scale.md describes it)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kitae.launch.slurm.money import cost_usd
from kitae.scale.efficiency import (
    COMPARED,
    TOLERANCES,
    Spread,
    difference,
    efficiency,
    fit,
    points_of,
    serial_fraction,
)
from kitae.scale.measured import Measured, Waits
from kitae.scale.plot import plot_of
from kitae.scale.share import Kind
from kitae.scale.verdict import Reached, remarks, verdict

FORMAT = 1


@dataclass(frozen=True)
class Predicted:
    """What a plan says of a width."""

    step_s: float
    rate: float
    """Tokens a second."""
    communication: float
    """Share of an update."""


@dataclass(frozen=True)
class Scaling:
    """Measurements, and what they are of."""

    name: str
    kind: Kind
    unit: str
    """What a width counts: workers or nodes."""
    rate_of: str
    """What a rate counts: tokens or sequences."""
    threshold: float
    """Efficiency that is asked for, 0 to 1."""
    widths: Sequence[int]
    """All that were asked for."""
    measured: Sequence[Measured]
    failed: Mapping[int, str] = field(default_factory=dict)
    """Widths that gave nothing -> why."""
    predicted: Mapping[int, Predicted] = field(default_factory=dict)
    price: Mapping[int, float] = field(default_factory=dict)
    """US dollars an hour, of widths whose price is known."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the JSON that describe the measurement: machine, steps, phase and so on."""
    warnings: Sequence[str] = ()
    wanted: int = 0
    """Measurements that make it complete."""

    @property
    def by_width(self) -> dict[int, list[Measured]]:
        """Those that there are."""
        found: dict[int, list[Measured]] = {}
        for one in sorted(self.measured, key=lambda one: (one.width, one.round)):
            found.setdefault(one.width, []).append(one)
        return found

    def as_json(self) -> dict[str, Any]:
        """The content of `scale.json`."""
        found = self.by_width
        law = fit(self.kind, points_of(found)) if found else None
        reached = [self._reached(width) for width in sorted(found)]
        losses = self._losses()
        rows = [self._row(width) for width in sorted({*self.widths, *found})]
        return {
            "kitae_scale": FORMAT,
            "name": self.name,
            "kind": self.kind,
            "unit": self.unit,
            "rate_of": self.rate_of,
            **self.about,
            "base": min(found, default=None),
            "threshold": self.threshold,
            "complete": len(self.measured) >= self.wanted and not self.failed,
            "verdict": verdict(self.kind, self.unit, self.threshold, reached),
            "remarks": list(remarks(self.kind, self.unit, rows, law, losses)),
            "warnings": list(self.warnings),
            "widths": rows,
            "fit": None if law is None else asdict(law),
            "losses": losses,
            "plot": plot_of(self, reached, law),
            "trials": [trial_json(one) for one in self.measured],
        }

    def _reached(self, width: int) -> Reached:
        found = self.by_width
        base = min(found)
        alone = Spread(1.0, 1.0, 1.0)
        reached = alone if width == base else efficiency(found[base], found[width])
        return Reached(width, reached, any(one.oversubscribed for one in found[width]))

    def predicted_efficiency(self, width: int) -> float | None:
        """What the plan says, against the smallest width that was measured."""
        base = min(self.by_width, default=width)
        if not {base, width} <= self.predicted.keys():
            return None
        return self.predicted[width].rate / width / (self.predicted[base].rate / base)

    def _row(self, width: int) -> dict[str, Any]:
        own = self.by_width.get(width, [])
        row: dict[str, Any] = {"width": width, "repeats": len(own), "failed": self.failed.get(width)}
        return {**row, **self._numbers(width, own)} if own else row

    def _numbers(self, width: int, own: Sequence[Measured]) -> dict[str, Any]:
        base = min(self.by_width)
        reached = self._reached(width).efficiency
        rate = Spread.of([one.rate for one in own])
        serial = None
        if width > base:
            serial = asdict(reached.through(lambda one: serial_fraction(self.kind, one, width / base)))
        return {
            "oversubscribed": any(one.oversubscribed for one in own),
            **{name: value for name, value in (own[0].about or {}).items() if value is not None},
            "step_s": _spread([one.step_s for one in own]),
            "first_step_s": _median([one.first_step_s for one in own]),
            "rate": asdict(rate),
            "real_rate": _median([one.real_rate for one in own]),
            "speedup": reached.median * width / base,
            "efficiency": asdict(reached),
            "serial_fraction": serial,
            "communication": _waits([one.waits for one in own]),
            "slow": _slow(own),
            **self._planned(width, own),
            "usd_an_hour": self.price.get(width),
            "usd_per_million_tokens": self._cost(width, rate.median),
            "difference": self._difference(width),
        }

    def _planned(self, width: int, own: Sequence[Measured]) -> dict[str, Any]:
        plan, actual = self.predicted.get(width), _median([one.step_s for one in own])
        if plan is None:
            return {"predicted": None, "predicted_by_actual": None}
        return {
            "predicted": {
                "step_s": plan.step_s,
                "efficiency": self.predicted_efficiency(width),
                "communication": plan.communication,
            },
            "predicted_by_actual": plan.step_s / actual if actual else None,
        }

    def _cost(self, width: int, rate: float) -> float | None:
        hourly = self.price.get(width)
        if hourly is None or self.rate_of != "tokens":
            return None
        return cost_usd(1, 1e6 / rate, hourly)

    def _difference(self, width: int) -> float | None:
        """Of losses and gradients from those of the smallest width, where both compute the same."""
        found = self.by_width
        return difference(found[min(found)], found[width]) if self.kind == "strong" else None

    def _losses(self) -> dict[str, Any] | None:
        """Whether strong scaling has computed the same thing at each width."""
        found = self.by_width
        differences = [one for width in found if (one := self._difference(width)) is not None]
        if not differences or len(found) < 2:
            return None
        tolerance = TOLERANCES[str(self.about.get("precision") or "fp32")]
        worst = max(differences)
        return {"equal": worst <= tolerance, "difference": worst, "tolerance": tolerance, "updates": COMPARED}


def trial_json(one: Measured) -> dict[str, Any]:
    """A measurement."""
    return {name: value for name, value in asdict(one).items() if name != "about"}


def _spread(values: Sequence[float | None]) -> dict[str, float] | None:
    known = [one for one in values if one is not None]
    return asdict(Spread.of(known)) if known else None


def _median(values: Sequence[float | None]) -> float | None:
    found = _spread(values)
    return None if found is None else found["median"]


def _waits(values: Sequence[Waits | None]) -> dict[str, float] | None:
    """Medians over the repeats."""
    known = [one for one in values if one is not None]
    if not known:
        return None
    return {
        "mean": Spread.of([one.mean for one in known]).median,
        "worst": Spread.of([one.worst for one in known]).median,
    }


def _slow(own: Sequence[Measured]) -> list[dict[str, Any]]:
    """Ranks that were slow in some repeat, the slowest time of each."""
    worst: dict[int, dict[str, Any]] = {}
    for one in (slow for measured in own for slow in measured.slow):
        if one.rank not in worst or one.ratio > worst[one.rank]["ratio"]:
            worst[one.rank] = asdict(one)
    return sorted(worst.values(), key=lambda one: -one["ratio"])
