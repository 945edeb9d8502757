"""The table of what raises an alarm: each rule looks at a run as it is now, and says what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from kitae.watch.alarms import Level
from kitae.watch.reading import Readings
from kitae.watch.trends import Idle, LossTrend

NOT_FINITE = "not-finite"
"""Kind of the line of metrics.jsonl with which a training ends whose loss or gradients are not finite."""
BUDGET_SHARE = 0.8
"""Of the budget, from which on it is told of."""
DISK_BYTES = 20 << 30
"""Free room that is enough on any disk, but for what the next checkpoint needs."""
ROOM_FOR_CHECKPOINTS = 1.5
"""Checkpoints for which there has to be room: the next is written before an older one goes."""
_GIB = 1 << 30


@dataclass(frozen=True)
class Limits:
    """What counts as wrong: `watch.alarms` of the recipe."""

    idle_minutes: float = 10.0
    idle_below: float = 0.02
    loss_rise: float = 0.2
    disk_free: float = 0.05
    budget_usd: float | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Limits:
        """Of the section's values, which has others as well."""
        return cls(**{one.name: values[one.name] for one in fields(cls) if one.name in values})


@dataclass(frozen=True)
class Sight:
    """A run as it is now."""

    now: float
    """In seconds since 1970."""
    limits: Limits
    readings: Readings
    loss: LossTrend
    last_line: Mapping[str, Any] = field(default_factory=dict)
    """Of metrics.jsonl."""
    idle: Mapping[str, Idle] = field(default_factory=dict)
    """By node; those that work are not in it."""
    cost_usd: float | None = None
    """Of all attempts so far."""
    price_per_hour: float | None = None
    """Of all nodes, US dollars."""
    nodes: int = 1
    disk_free_bytes: int | None = None
    """Of the disk that the run lies on."""
    disk_total_bytes: int | None = None
    checkpoint_bytes: int = 0
    """Of the newest checkpoint."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong now."""

    level: Level
    what: str
    node: str | None = None
    since: float | None = None
    """When it began, where that is known; else when it was found."""


Rule = Callable[[Sight], Iterator[Finding]]


def idle_while_paid(sight: Sight) -> Iterator[Finding]:
    """All cores of a node did nothing for as long as is allowed."""
    for node, idle in sight.idle.items():
        if idle.seconds < 60 * sight.limits.idle_minutes:
            continue
        cost = (
            ""
            if sight.price_per_hour is None
            else _usd(sight.price_per_hour / sight.nodes * idle.seconds / 3600)
        )
        yield Finding(
            "critical",
            f"none of the {idle.cores} cores has done anything for {idle.seconds / 60:.0f} minutes"
            f"{cost and f', which cost {cost}'}: `kitae logs` tells what it is at, `kitae cancel` ends it",
            node,
            idle.since,
        )


def non_finite_loss(sight: Sight) -> Iterator[Finding]:
    """The training has ended with a loss or gradient that is not finite."""
    if sight.last_line.get("kind") == NOT_FINITE:
        yield Finding("critical", str(sight.last_line.get("what", "loss or gradients are not finite")))


def rising_loss(sight: Sight) -> Iterator[Finding]:
    """The loss is well above what it has been."""
    rise = sight.loss.rise()
    if rise is None or rise <= sight.limits.loss_rise:
        return
    yield Finding(
        "critical" if rise > 1 else "warning",
        f"the loss, {sight.loss.mean:.4f} over the last updates, is {100 * rise:.0f} % above the lowest, "
        f"{sight.loss.lowest:.4f}: lower optimizer.learning_rate, or look at the text with `kitae inspect`",
    )


def slow_rank(sight: Sight) -> Iterator[Finding]:
    """Others wait for a rank, as the ranks have told each other since this attempt began."""
    readings = sight.readings
    last = readings.ranks[-1] if readings.ranks else {}
    begun = readings.starts[-1].get("step", 0) if readings.starts else 0
    if last.get("step", 0) <= begun:
        return
    names = last.get("nodes", [])
    by_node: dict[str | None, list[str]] = {}
    for one in last.get("slow", []):
        node = names[one["rank"]] if one["rank"] < len(names) else None
        by_node.setdefault(node, []).append(f"rank {one['rank']} ({one['ratio']:.2f} x)")
    for node, ranks in by_node.items():
        verb = "computes" if len(ranks) == 1 else "compute"
        yield Finding(
            "warning",
            f"{' and '.join(ranks)} {verb} longer than the others, which wait: look at what else runs there, "
            "or take the machine out",
            node,
        )


def disk_nearly_full(sight: Sight) -> Iterator[Finding]:
    """The run's disk has little room, or too little for the next checkpoint."""
    free, total = sight.disk_free_bytes, sight.disk_total_bytes
    if free is None or total is None:
        return
    checkpoint = sight.checkpoint_bytes
    need = max(min(sight.limits.disk_free * total, DISK_BYTES), ROOM_FOR_CHECKPOINTS * checkpoint)
    if free >= need:
        return
    saved = f"; a checkpoint takes {checkpoint / _GIB:.1f} GiB" if checkpoint else ""
    yield Finding(
        "critical" if free < max(checkpoint, 0.01 * total) else "warning",
        f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB are free on the run's disk{saved}: make room, or lower "
        "checkpoint.keep",
    )


def budget_nearly_spent(sight: Sight) -> Iterator[Finding]:
    """Most of what the run may cost has been spent, or all of it."""
    budget, cost = sight.limits.budget_usd, sight.cost_usd
    if budget is None or cost is None or cost < BUDGET_SHARE * budget:
        return
    hourly = "" if sight.price_per_hour is None else f", and {_usd(sight.price_per_hour)} follow each hour"
    yield Finding(
        "critical" if cost >= budget else "warning",
        f"{_usd(cost)} of {_usd(budget)} (watch.alarms.budget_usd) are spent{hourly}: nothing stops by "
        "itself, `kitae cancel` ends the run",
    )


RULES: dict[str, Rule] = {
    "idle-while-paid": idle_while_paid,
    "non-finite-loss": non_finite_loss,
    "rising-loss": rising_loss,
    "slow-rank": slow_rank,
    "disk-nearly-full": disk_nearly_full,
    "budget-at-80-percent": budget_nearly_spent,
}
OUTLIVE = ("non-finite-loss",)
"""Those that an attempt ends with: they go on until the next one."""


def _usd(amount: float) -> str:
    return f"${amount:,.2f}"
