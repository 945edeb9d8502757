"""How the training's speed grew with its width, where `kitae scale` measured it (`scale/*/scale.json`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kitae.watch.report.blocks import Block, Chart, Table, Trace, Words
from kitae.watch.report.figures import NONE, number, percent, seconds, usd
from kitae.watch.report.run_view import RunView


def scaling(view: RunView) -> Iterator[Block]:
    """A verdict, a table and a chart of each kind."""
    for path in sorted(view.path.glob("scale/*/scale.json")):
        found = view.read(str(path.relative_to(view.path)))
        if found:
            yield from _measured(found, path.parent.name)


def _measured(found: Mapping[str, Any], kind: str) -> Iterator[Block]:
    yield Words(str(found.get("verdict") or f"{kind} scaling was not measured to its end"))
    for line in (*(found.get("remarks") or []), *(found.get("warnings") or [])):
        yield Words(str(line), "warn")
    plot = found.get("plot") or {}
    traces = tuple(_trace(one, place) for place, one in enumerate(plot.get("series") or []) if one.get("x"))
    if traces:
        yield Chart(
            f"scale-{kind}",
            str(plot.get("title") or f"{kind} scaling"),
            str(plot.get("x_label") or "width"),
            "efficiency",
            traces,
            "; ".join(f"{one.name}: {percent(one.ys[-1])} at {number(one.xs[-1])}" for one in traces),
            share=True,
            doubling=True,
        )
    rows = tuple(_width(one) for one in found.get("widths") or [])
    if rows:
        head = (
            str(found.get("unit") or "width"),
            "efficiency",
            "from, to",
            "update",
            "communication",
            "planned",
            "$ per M tokens",
            "",
        )
        yield Table(f"{kind} scaling", head, rows, frozenset({7}))


def _trace(series: Mapping[str, Any], place: int) -> Trace:
    measured = series.get("low") is not None
    return Trace(
        str(series.get("name") or ""),
        series["x"],
        series["y"],
        points=measured,
        run=place,
        dash=not measured,
        low=series.get("low"),
        high=series.get("high"),
    )


def _width(one: Mapping[str, Any]) -> tuple[str, ...]:
    efficiency, step = one.get("efficiency") or {}, one.get("step_s") or {}
    low, high = efficiency.get("low"), efficiency.get("high")
    notes = (one.get("failed"), "more processes than cores" if one.get("oversubscribed") else None)
    return (
        number(one.get("width")),
        percent(efficiency.get("median")),
        NONE if low is None else f"{percent(low)} to {percent(high)}",
        seconds(step.get("median")),
        percent((one.get("communication") or {}).get("mean")),
        percent((one.get("predicted") or {}).get("efficiency")),
        usd(one.get("usd_per_million_tokens")),
        "; ".join(str(note) for note in notes if note),
    )
