"""Plans for people: tables, the assumptions, and the verdict in one sentence."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from kitae.plan.estimate import Estimate
from kitae.plan.facts import assumptions
from kitae.plan.money import per_million_tokens
from kitae.plan.phases import Phase, span
from kitae.stages.estimating import Candidate
from kitae.stages.planning import readable

WIDTH = 120
"""Where nobody looks at a terminal."""


def show(found: Estimate, *notes: str) -> None:
    """Print the plan of one kind of machine."""
    out = console()
    money = [_money(found)] if found.bill is not None else []  # first, as it may be refused
    for one in (_memory(found), _time(found), *money):
        out.print(one)
    for line in (*notes, *assumptions(found)):
        out.print(f"assumed: {line}", style="dim", highlight=False)
    for change in found.verdict.changes:
        out.print(f"would fit: --set {change}", highlight=False)
    out.print(found.sentence, style="bold", highlight=False)


def show_comparison(lines: Sequence[Candidate]) -> None:
    """Print one line a machine: memory, time, cost."""
    shown = table("nodes", "cut over", "memory", "update", "training", "US$", "US$ a million tokens")
    problems = []
    for one in lines:
        name = f"{one.nodes} x {one.name}"
        if one.found is None:
            shown.add_row(name, "", "cannot run", "", "", "", "")
            problems.append(f"{name}: {one.problem}")
        else:
            shown.add_row(name, *_compared(one.found))
    out = console()
    out.print(shown)
    for problem in problems:
        out.print(problem, highlight=False)


def _compared(found: Estimate) -> tuple[str, ...]:
    phase, total = found.phases[0], found.bill.total if found.bill is not None else None
    seconds, tokens = found.train_s(), found.tokens
    return (
        str(phase.work.tensor_parallel),
        f"{found.verdict.word}, {found.verdict.share:.0%}",
        interval(*phase.time.interval),
        span(seconds) if seconds is not None else "unknown",
        "unknown" if total is None else f"{total:,}",
        str(per_million_tokens(total, tokens)) if total is not None and tokens else "unknown",
    )


def _memory(found: Estimate) -> Table:
    memory, verdict = found.verdict.memory, found.verdict
    shown = table("memory of a process", "bytes")
    for name, size in memory.state.items():
        shown.add_row(name, readable(size))
    shown.add_row("activations and buffers", readable(max(0, memory.extra)))
    shown.add_row("program", readable(verdict.device_used - memory.peak))
    shown.add_row("at its fullest", f"{readable(verdict.device_used)} of {readable(verdict.device_bytes)}")
    shown.add_row("a host", f"{readable(verdict.host_used)} of {readable(verdict.host_bytes)}")
    return shown


def _time(found: Estimate) -> Table:
    shown = table("time", *(phase.name or "" for phase in found.phases))
    rows = {
        "an update": [interval(*phase.time.interval) for phase in found.phases],
        **{
            f"  {_SHOWN.get(name, name)}": [span(_part(phase, name)) for phase in found.phases]
            for name in ("products", "weights", "dropout", "tensor_parallel", "copies", "optimizer", "host")
            if any(_part(phase, name) for phase in found.phases)
        },
        "updates": [f"{phase.steps:,}" if phase.steps is not None else "unknown" for phase in found.phases],
        "tokens a day": [f"{phase.tokens_per_day:,.0f}" for phase in found.phases],
    }
    for name, cells in rows.items():
        shown.add_row(name, *cells)
    shown.add_row("utilisation", f"{found.utilisation:.1%} of the {found.peak_dtype} peak")
    if found.steps is None:
        shown.add_row("length", "unknown: epochs of a text that is not prepared; run kitae prepare first")
    return shown


_SHOWN = {"dropout": "probabilities"}
"""Of attention through memory: with dropout always, without it where attention is not one kernel."""


def _part(phase: Phase, name: str) -> float:
    if name == "products":
        return sum(phase.time.products.values())
    seconds: float = getattr(phase.time, name)
    return seconds


def _money(found: Estimate) -> Table:
    shown = table("cost", "how", "US$")
    assert found.bill is not None, "asked for where there is one"
    for line in found.bill.lines:
        shown.add_row(line.item, line.how, "unknown" if line.usd is None else f"{line.usd:,}")
    total = found.bill.total
    shown.add_row("together", "", f"{total:,}" if total is not None else f"more than {found.bill.known:,}")
    if total is not None and found.tokens:
        shown.add_row(
            "a million tokens", f"{found.tokens:,} tokens", str(per_million_tokens(total, found.tokens))
        )
    return shown


def interval(low: float, high: float) -> str:
    """Two times."""
    return f"{span(low)} to {span(high)}"


def table(*columns: str) -> Table:
    """An empty one, without lines."""
    made = Table(box=None, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")  # of an amount no digit is left out
    return made


def console() -> Console:
    """Where to print: as wide as the terminal."""
    return Console() if sys.stdout.isatty() else Console(width=WIDTH)
