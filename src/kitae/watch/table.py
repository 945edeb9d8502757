"""Runs as rows for a person."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kitae.watch.state import State
from kitae.watch.status import Status

HEAD = ("run", "state", "step", "loss", "tokens/s", "nodes", "left", "cost", "sign", "note")
_RIGHT = {"step", "loss", "tokens/s", "nodes", "left", "cost", "sign"}
_NONE = "-"
_WAY_OUT = "; run the same command again"
"""What stands behind a reason, and is the same everywhere."""
_STYLES: dict[State, str] = {
    "running": "green",
    "silent": "yellow",
    "waiting": "cyan",
    "done": "dim",
    "stopped": "yellow",
    "failed": "red",
    "died": "red",
}


def row(status: Status) -> tuple[str, ...]:
    """The cells of a run, in the order of `HEAD`."""
    progress = status.progress
    steps = "?" if progress.steps is None else progress.steps
    return (
        status.name,
        status.state,
        _NONE if progress.step is None else f"{progress.step}/{steps}",
        _NONE if progress.loss is None else f"{progress.loss:.4f}",
        _NONE if progress.tokens_per_s is None else f"{progress.tokens_per_s:,.0f}",
        str(status.node_count or _NONE),
        duration(status.seconds_left),
        _NONE if status.cost_usd is None else f"${status.cost_usd:,.2f}",
        duration(status.sign_age_s),
        first_line(status.why).partition(_WAY_OUT)[0],
    )


def duration(seconds: float | None) -> str:
    """Write seconds as 12s, 3m, 2h07m or 5d02h."""
    if seconds is None:
        return _NONE
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def first_line(text: str) -> str:
    """The first line of a text."""
    return text.partition("\n")[0]


def print_rows(statuses: Sequence[Status]) -> None:
    """A table on a terminal; elsewhere one line a run, with none broken or cut."""
    rows = [row(status) for status in statuses]
    if sys.stdout.isatty():
        _print_table(rows, [_STYLES[status.state] for status in statuses])
    else:
        print("\n".join(plain_lines(rows)))


def plain_lines(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Aligned by blanks, below a line of heads."""
    everything = [HEAD, *rows]
    widths = [max(len(one[column]) for one in everything) for column in range(len(HEAD))]
    return ["  ".join(_aligned(one, widths)).rstrip() for one in everything]


def _aligned(cells: tuple[str, ...], widths: Sequence[int]) -> list[str]:
    return [
        f"{cell:>{width}}" if head in _RIGHT else f"{cell:{width}}"
        for head, cell, width in zip(HEAD, cells, widths, strict=True)
    ]


def _print_table(rows: Sequence[tuple[str, ...]], styles: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    columns = [
        Column(head, justify="right" if head in _RIGHT else "left", no_wrap=head != "note") for head in HEAD
    ]
    table = Table(*columns, box=None, pad_edge=False)
    for cells, style in zip(rows, styles, strict=True):
        shown = [Text(cell) for cell in cells]
        shown[1].stylize(style)
        table.add_row(*shown)
    Console().print(table)
