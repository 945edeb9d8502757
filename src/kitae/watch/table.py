"""Runs as rows for a person."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from kitae.watch.state import State

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


def row(seen: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of a run, as `Status.as_json` tells of it, in the order of `HEAD`."""
    step, loss, speed, cost = (seen[name] for name in ("step", "loss", "tokens_per_s", "cost_usd"))
    steps = "?" if seen["steps"] is None else seen["steps"]
    host = f"{seen['head']}: " if seen.get("head") else ""
    return (
        seen["run"],
        seen["state"],
        _NONE if step is None else f"{step}/{steps}",
        _NONE if loss is None else f"{loss:.4f}",
        _NONE if speed is None else f"{speed:,.0f}",
        str(seen["node_count"] or _NONE),
        duration(seen["seconds_left"]),
        _NONE if cost is None else f"${cost:,.2f}",
        duration(seen["last_sign_s"]),
        f"{host}{first_line(seen['why']).partition(_WAY_OUT)[0]}".removesuffix(": "),
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


def print_rows(seen: Sequence[Mapping[str, Any]]) -> None:
    """A table on a terminal; elsewhere one line a run, with none broken or cut."""
    rows = [row(one) for one in seen]
    if sys.stdout.isatty():
        _print_table(rows, [_STYLES.get(one["state"], "") for one in seen])
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
