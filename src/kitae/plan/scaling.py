"""Curves of a training over numbers of nodes: strong (the same update) and weak (the same work on each node).

Nodes are taken alike. Efficiency is tokens a second and node against the first point of the curve.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kitae.plan.failures import Failures
from kitae.plan.machine import Machine
from kitae.plan.phases import HOUR, failures_of, steps_of
from kitae.plan.step_time import StepTime, step_time
from kitae.plan.verdict import judge
from kitae.plan.work import Work
from kitae.recipe.base import Duration


@dataclass(frozen=True)
class Frame:
    """What all points of a curve share."""

    work: Work
    """The update to start from; copies and rows of a micro-batch follow from the nodes."""
    machine: Machine
    base_nodes: int
    """Nodes that `work` has its global batch on; weak scaling grows it from there."""
    weak: bool
    mtbf_hours: float
    """Of a node; infinite where none fails."""
    save_every: Duration | None
    """Between two checkpoints; None: what leaves most."""
    usd_an_hour: float | None
    """Of a node; None: unknown."""
    saves_beside: bool = False
    shares_optimizer: bool = True
    """Whether several copies cut the optimizer's state (ZeRO-1)."""


@dataclass(frozen=True)
class Point:
    """One number of nodes."""

    nodes: int
    work: Work
    time: StepTime
    efficiency: float
    failures: Failures
    goodput: float
    """Share of the time that ends up in updates."""
    word: str
    """fits, tight or does not fit."""
    usd_per_million: float | None

    @property
    def tokens_per_s(self) -> float:
        """While nothing fails."""
        return self.work.global_rows * self.work.length / self.time.seconds

    @property
    def communication(self) -> float:
        """Share of an update."""
        return self.time.communication / self.time.seconds


def nodes_between(first: int, last: int) -> list[int]:
    """Both, and the powers of two between them."""
    powers = [1 << power for power in range(last.bit_length())]
    return sorted({first, last, *(one for one in powers if first < one < last)})


def curve(frame: Frame, counts: Sequence[int]) -> list[Point]:
    """Points of those numbers of nodes on which the rows of an update can be shared out evenly."""
    works = [(nodes, work) for nodes in counts if (work := work_on(frame, nodes)) is not None]
    points: list[Point] = []
    for nodes, work in works:
        points.append(_point(frame, nodes, work, points[0] if points else None))
    return points


def work_on(frame: Frame, nodes: int) -> Work | None:
    """The update on so many nodes; None where they cannot share it evenly."""
    work = frame.work
    copies, rest = divmod(nodes * frame.machine.devices, work.tensor_parallel)
    rows = work.global_rows
    if frame.weak:
        rows, uneven = divmod(work.global_rows * nodes, frame.base_nodes)
        rest += uneven
    if rest or not copies or rows % copies:
        return None
    each = rows // copies
    micro = next(size for size in range(min(work.rows, each), 0, -1) if each % size == 0)
    if work.sequence_parallel and micro * work.length % work.tensor_parallel:
        return None
    zero1 = frame.shares_optimizer and copies > 1
    return replace(work, global_rows=rows, data_parallel=copies, rows=micro, zero1=zero1)


def _point(frame: Frame, nodes: int, work: Work, first: Point | None) -> Point:
    machine = replace(frame.machine, nodes=nodes)
    time = step_time(work, machine)
    failures = failures_of(work, nodes, frame.mtbf_hours, frame.saves_beside)
    apart = steps_of(frame.save_every, work, None) if frame.save_every is not None else None
    goodput = failures.goodput(apart * time.seconds if apart else failures.best_interval_s)
    each = work.global_rows * work.length / time.seconds / nodes
    cost = None
    if frame.usd_an_hour is not None and goodput:
        cost = frame.usd_an_hour / HOUR / (each * goodput) * 1e6
    return Point(
        nodes=nodes,
        work=work,
        time=time,
        efficiency=each * first.nodes / first.tokens_per_s if first is not None else 1.0,
        failures=failures,
        goodput=goodput,
        word=judge(work, machine, advise=False).word,
        usd_per_million=cost,
    )


def communication_wins(frame: Frame, counts: Sequence[int]) -> int | None:
    """The least number of nodes within the range on which collectives take more than half of an update."""
    for nodes in range(counts[0], counts[-1] + 1):
        work = work_on(frame, nodes)
        if work is None:
            continue
        time = step_time(work, replace(frame.machine, nodes=nodes))
        if time.communication > time.seconds / 2:
            return nodes
    return None


def remarks(frame: Frame, points: Sequence[Point], counts: Sequence[int]) -> Iterator[str]:
    """What the curve shows, in sentences."""
    kind = "weak" if frame.weak else "strong"
    last, first = points[-1], points[0]
    yield (
        f"{kind} scaling from {first.nodes} to {last.nodes} nodes ({last.work.world:,} processes): "
        f"efficiency {last.efficiency:.0%}"
    )
    yield _communicating(communication_wins(frame, counts), first, last)
    missing = [nodes for nodes in counts if nodes > last.nodes]
    if missing and not frame.weak:
        yield (
            f"above {last.nodes} nodes the {last.work.global_rows} rows of an update cannot be shared out "
            "evenly; raise training.global_batch_size, or see --weak"
        )
    best = max(points, key=lambda one: one.tokens_per_s * one.goodput)
    most = best.tokens_per_s * best.goodput
    yield f"most tokens: {best.nodes} nodes, {most:,.0f} a second, failures counted"
    if frame.mtbf_hours != float("inf"):
        lost = last.failures
        yield (
            f"a node fails every {frame.mtbf_hours:,.0f} h, one of {last.nodes} every "
            f"{lost.mtbf_s / HOUR:.3g} h; saving every {lost.best_interval_s / 60:.0f} min is best there"
        )
    yield (
        "nodes are taken alike: BERT on 16 of them kept 94 % in the vendor's weak scaling, 87 % in an older "
        "release; the slowest one is not in these numbers"
    )


def _communicating(wins: int | None, first: Point, last: Point) -> str:
    """From where on communication wins."""
    if wins is None:
        share = f"{last.communication:.0%} on {last.nodes} nodes"
        return f"communication stays below half of an update; it is {share}"
    if wins > first.nodes:
        return f"from {wins} nodes on, communication takes more than half of an update"
    most = "of tensor parallelism" if first.time.tensor_parallel > first.time.copies else "between copies"
    return f"communication, most of it {most}, takes {first.communication:.0%} of an update from the start"


def as_json(frame: Frame, points: Sequence[Point], counts: Sequence[int]) -> dict[str, Any]:
    """The curve for machines. Seconds, shares, US dollars."""
    return {
        "scaling": "weak" if frame.weak else "strong",
        "machine": frame.machine.name,
        "mtbf_hours": None if frame.mtbf_hours == float("inf") else frame.mtbf_hours,
        "communication_wins_at_nodes": communication_wins(frame, counts),
        "points": [_point_json(one) for one in points],
        "remarks": list(remarks(frame, points, counts)),
    }


def _point_json(point: Point) -> dict[str, Any]:
    best = point.failures.best_interval_s
    return {
        "nodes": point.nodes,
        "processes": point.work.world,
        "copies": point.work.data_parallel,
        "global_batch_size": point.work.global_rows,
        "micro_batch_size": point.work.rows,
        "verdict": point.word,
        "step_s": point.time.seconds,
        "step_s_interval": list(point.time.interval),
        "tokens_per_s": point.tokens_per_s,
        "efficiency": point.efficiency,
        "communication": point.communication,
        "goodput": point.goodput,
        "best_save_interval_s": None if best == float("inf") else best,
        "usd_per_million_tokens": point.usd_per_million,
    }
