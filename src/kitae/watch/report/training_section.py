"""Curves of a training: loss, schedule, gradients, speed, memory; of one run or of several together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

from kitae.watch.reading import thinned
from kitae.watch.report.blocks import Block, Chart, Table, Trace
from kitae.watch.report.figures import NONE, loss, number, percent, seconds, size
from kitae.watch.report.run_view import RunView

POINTS = 2000
"""Of a curve, all runs together: what goes beyond is thinned, with first, last and extremes kept."""
_FEWEST = 100
Show = Callable[[float], str]


@dataclass(frozen=True)
class Kind:
    """A chart of columns of the metrics."""

    key: str
    title: str
    y: str
    columns: tuple[tuple[str, str], ...]
    """Names in `Columns`, and in words."""
    show: Show
    x: str = "step"
    evaluations: bool = False
    share: bool = False
    decades: bool = False
    steady: bool = False
    """Without the first update of an attempt, which warms up."""


KINDS = (
    Kind("loss", "Loss", "nats", (("loss", "training"),), loss, evaluations=True),
    Kind(
        "loss-tokens",
        "Loss over tokens",
        "nats",
        (("loss", "training"),),
        loss,
        x="total_real_tokens",
        evaluations=True,
    ),
    Kind("learning-rate", "Learning rate", "rate", (("learning_rate", "learning rate"),), number),
    Kind(
        "grad-norm",
        "Gradient norm before clipping",
        "norm",
        (("grad_norm", "gradient norm"),),
        number,
        decades=True,
    ),
    Kind(
        "throughput",
        "Throughput of all devices",
        "tokens/s",
        (("tokens_per_s", "with padding"), ("real_tokens_per_s", "real")),
        number,
        steady=True,
    ),
    Kind("step-time", "Time of an update", "seconds", (("step_seconds", "update"),), seconds),
    Kind(
        "utilisation",
        "Utilisation",
        "share of the peak",
        (("utilisation", "utilisation"),),
        percent,
        share=True,
        steady=True,
    ),
    Kind(
        "memory",
        "Memory of the process that holds most",
        "bytes",
        (("peak_memory_bytes", "most so far"),),
        size,
    ),
)
"""In the order of the report."""
_X = {"step": "step (updates)", "total_real_tokens": "tokens read (real)"}


def training(view: RunView) -> Iterator[Block]:
    """Charts of a run, and who is slow."""
    yield from charts([view])
    yield from _slow(view)


def charts(views: Sequence[RunView]) -> Iterator[Block]:
    """All charts that these runs have numbers for, one run beside the other."""
    for kind in KINDS:
        chart = _chart(kind, views)
        if chart is not None:
            yield chart


def _chart(kind: Kind, views: Sequence[RunView]) -> Chart | None:
    found = [trace for place, view in enumerate(views) for trace in _traces(kind, view, place, len(views))]
    if not found:
        return None
    alone = views[0] if len(views) == 1 else None
    return Chart(
        kind.key,
        kind.title,
        _X[kind.x],
        kind.y,
        tuple(found),
        "; ".join(_summary(kind, trace) for trace in found[:8]),
        marks=_marks(alone) if alone is not None and kind.x == "step" else (),
        share=kind.share,
        units=kind.y in ("bytes", "tokens/s"),
        numbers=_numbers(kind, found),
        decades=kind.decades and all(y is None or y > 0 for trace in found for y in trace.ys),
    )


def _traces(kind: Kind, view: RunView, place: int, runs: int) -> Iterator[Trace]:
    points = max(_FEWEST, POINTS // runs)
    several = len(kind.columns) > 1 or runs == 1
    columns = view.readings.train
    chosen = [i for i in range(len(columns)) if not (kind.steady and columns.first_step[i] == 1)]
    xs = getattr(columns, kind.x)
    for name, words in kind.columns:
        ys = getattr(columns, name)
        few = thinned([xs[i] for i in chosen], [ys[i] for i in chosen], points)
        if few[0] and not (name == "real_tokens_per_s" and list(ys) == list(columns.tokens_per_s)):
            name = ", ".join([*([view.name] if runs > 1 else ()), *([words] if several else ())])
            yield Trace(name, *few, run=place, dash=words == "real")
    if kind.evaluations:
        yield from _heldout(kind, view, place, f"{view.name}, " if runs > 1 else "", points)


def _heldout(kind: Kind, view: RunView, place: int, prefix: str, points: int) -> Iterator[Trace]:
    """Held-out losses, at the place that the last update before them has; by phase, whose texts differ."""
    xs, evaluations = getattr(view.readings.train, kind.x), view.readings.evaluations
    for phase in dict.fromkeys(one.get("phase") for one in evaluations):
        own = [
            one
            for one in evaluations
            if one.get("phase") == phase and isinstance(one.get("loss"), int | float)
        ]
        at = [
            one["step"] if kind.x == "step" else xs[one["index"] - 1] if one["index"] else 0.0 for one in own
        ]
        few = thinned([float(x) for x in at], [float(one["loss"]) for one in own], points)
        if few[0]:
            of = "" if phase is None else f" of {phase}"
            yield Trace(f"{prefix}held out{of}", *few, points=True, run=place)


def _marks(view: RunView) -> tuple[tuple[float, str], ...]:
    """Where attempts went on, and phases began."""
    steps = view.readings.train.step
    resumed = [(float(one["step"]), f"attempt {one.get('attempt', '')}") for one in view.readings.starts[1:]]
    phases = [(steps[index] - 1, name) for name, index in view.readings.phases]
    return (*resumed[-20:], *phases)


def _values(trace: Trace) -> list[float]:
    return [y for y in trace.ys if y is not None and isfinite(y)]


def _summary(kind: Kind, trace: Trace) -> str:
    values = _values(trace)
    first, last = kind.show(values[0]), kind.show(values[-1])
    low, high = kind.show(min(values)), kind.show(max(values))
    return f"{trace.name}: {first} at first, {last} at last, between {low} and {high}"


def _numbers(kind: Kind, traces: Sequence[Trace]) -> Table:
    rows = []
    for trace in traces:
        values = _values(trace)
        ends = (values[0], min(values), max(values), values[-1])
        rows.append((trace.name, *(kind.show(value) for value in ends)))
    return Table(f"{kind.title}, {kind.y}", ("curve", "first", "lowest", "highest", "last"), tuple(rows))


def _slow(view: RunView) -> Iterator[Block]:
    """How long each rank computes in an update, where there are several."""
    if not view.readings.ranks:
        return
    newest = view.readings.ranks[-1]
    times = newest.get("compute_seconds") or []
    nodes = newest.get("nodes") or []
    slow = {one["rank"]: f"slow: {one['ratio']:.2f} x" for one in newest.get("slow") or []}
    order = sorted(range(len(times)), key=lambda rank: -times[rank])[:16]
    rows = tuple(
        (f"rank {rank}", nodes[rank] if rank < len(nodes) else NONE, seconds(times[rank]), slow.get(rank, ""))
        for rank in order
    )
    if rows:
        caption = f"ranks by the time they compute in an update, at step {newest.get('step', 0):,}"
        more = f" (the 16 longest of {len(times)})" if len(times) > 16 else ""
        yield Table(caption + more, ("rank", "node", "computes", ""), rows, words=frozenset({0, 1, 3}))
