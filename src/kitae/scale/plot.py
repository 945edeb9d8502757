"""The lines of a scaling plot, ready to be drawn: efficiency over width, width on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kitae.scale.efficiency import Fit
from kitae.scale.verdict import Reached

if TYPE_CHECKING:
    from kitae.scale.result import Scaling

Line = dict[str, Any]


def plot_of(scaling: Scaling, reached: Sequence[Reached], law: Fit | None) -> Line:
    """Measured with its spread, the plan, the fitted law, and the ideal."""
    widths = [one.width for one in reached]
    lines = [_measured(reached), _plan(scaling, widths), _law(law, widths), _ideal(widths)]
    return {
        "title": f"{scaling.kind} scaling of {scaling.name}",
        "x_label": scaling.unit,
        "y_label": "efficiency",
        "y_format": "percent",
        "threshold": scaling.threshold,
        "series": [line for line in lines if line["x"]],
    }


def _measured(reached: Sequence[Reached]) -> Line:
    return {
        "name": "measured",
        "x": [one.width for one in reached],
        "y": [one.efficiency.median for one in reached],
        "low": [one.efficiency.low for one in reached],
        "high": [one.efficiency.high for one in reached],
    }


def _plan(scaling: Scaling, widths: Sequence[int]) -> Line:
    points = [(width, scaling.predicted_efficiency(width)) for width in widths]
    return _line("plan", [(width, value) for width, value in points if value is not None])


def _law(law: Fit | None, widths: Sequence[int]) -> Line:
    if law is None:
        return _line("", [])
    name = f"{law.law}, serial {law.serial_fraction:.1%}"
    return _line(name, [(width, law.efficiency(width / widths[0])) for width in widths])


def _ideal(widths: Sequence[int]) -> Line:
    return _line("ideal", [(width, 1.0) for width in widths])


def _line(name: str, points: Sequence[tuple[int, float]]) -> Line:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return {"name": name, "x": xs, "y": ys, "low": None, "high": None}
