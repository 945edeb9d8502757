"""`kitae plan --search` and `--simulate`: what they print."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from kitae.cli.plan_tables import console, interval, table
from kitae.plan.failures import NODE_MTBF_HOURS
from kitae.plan.money import Rent
from kitae.plan.phases import span
from kitae.plan.scaling import as_json as curve_json
from kitae.plan.scaling import remarks
from kitae.stages.searching import MOST_NODES, Limits, Proposal, as_json, search, short
from kitae.stages.simulating import parse_range, simulate

if TYPE_CHECKING:
    from kitae.plan.scaling import Point
    from kitae.stages.simulating import Curve


def show_search(
    path: Path,
    changes: Sequence[str],
    instance: str | None,
    nodes: int | None,
    rent: Rent,
    max_cost: Decimal | None,
    until: datetime | None,
    json_wanted: bool,
) -> None:
    """Look for the cheapest and the fastest way, and say why."""
    names = [name.strip() for name in instance.split(",")] if instance is not None else []
    limits = Limits(max_cost, until, datetime.now(timezone.utc))
    found = search(path, changes, names, nodes or MOST_NODES, rent, limits)
    if json_wanted:
        print(json.dumps([as_json(one) for one in found], indent=2))
        return
    for one in found:
        _show_proposal(one, path)


def _show_proposal(one: Proposal, path: Path) -> None:
    way, out = one.way, console()
    total = one.found.bill.total if one.found.bill is not None else None
    cost = "its price is unknown" if total is None else f"${total:,}"
    out.print(f"{one.aim}: {short(way)}", style="bold", highlight=False)
    out.print(f"  {span(way.train_s)} of training, {cost}; {way.share:.0%} of the memory", highlight=False)
    out.print(f"  bounded by {one.bounded}", highlight=False)
    for line in one.others:
        out.print(f"  {line}", highlight=False, soft_wrap=True)
    for note in one.notes:
        out.print(f"  assumed: {note}", style="dim", highlight=False)
    words = " ".join(f"--set {word}" for word in one.words)
    out.print(
        f"  kitae plan {path} --instance {way.instance} --nodes {way.nodes} {words}",
        highlight=False,
        soft_wrap=True,
    )


def show_simulation(
    path: Path,
    changes: Sequence[str],
    instance: str,
    text: str,
    rent: Rent,
    *,
    weak: bool,
    mtbf_hours: float | None,
    json_wanted: bool,
) -> None:
    """Print the scaling curve of each phase."""
    from kitae.stages.estimating import trainable

    curves = simulate(
        path,
        changes,
        trainable(instance),
        parse_range(text),
        weak=weak,
        mtbf_hours=NODE_MTBF_HOURS if mtbf_hours is None else mtbf_hours,
        rent=rent,
    )
    if json_wanted:
        facts = [{"phase": one.phase, **curve_json(one.frame, one.points, one.counts)} for one in curves]
        print(json.dumps(facts, indent=2))
        return
    for one in curves:
        _show_curve(one)


def _show_curve(one: Curve) -> None:
    out = console()
    if one.phase is not None:
        out.print(f"phase {one.phase}", style="bold", highlight=False)
    out.print(_curve(one.points))
    for line in remarks(one.frame, one.points, one.counts):
        out.print(line, highlight=False)


def _curve(points: Sequence[Point]) -> Table:
    shown = table(
        *("nodes", "batch", "update", "tokens/s", "efficiency", "communication", "failures leave", "memory"),
        "US$ a million tokens",
    )
    for one in points:
        cost = "unknown" if one.usd_per_million is None else f"{one.usd_per_million:.4f}"
        shown.add_row(
            *(f"{one.nodes:,}", f"{one.work.global_rows:,}", interval(*one.time.interval)),
            *(f"{one.tokens_per_s:,.0f}", f"{one.efficiency:.1%}", f"{one.communication:.1%}"),
            *(f"{one.goodput:.1%}", one.word, cost),
        )
    return shown
