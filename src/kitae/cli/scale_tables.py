"""Scaling for people: the table, what is to be seen, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.table import Table

from kitae.cli.plan_tables import console, table

Row = Mapping[str, Any]
MARK = "*"
"""Behind a width whose threads outnumber the cores."""


def show(found: Mapping[str, Any]) -> None:
    """Print what `scale.json` holds."""
    out = console()
    for line in head(found):
        out.print(line, style="dim", highlight=False)
    out.print(table_of(found))
    for line in found["warnings"]:
        out.print(f"warning: {line}", highlight=False)
    for line in found["remarks"]:
        out.print(line, highlight=False)
    out.print(found["verdict"], style="bold", highlight=False)


def head(found: Mapping[str, Any]) -> list[str]:
    """What the numbers are of."""
    first = next((row for row in found["widths"] if row.get("first_step_s")), None)
    if first is None:
        return []
    left_out = f"the first {found['warm_up']} of each measurement are left out"
    return [
        f"{found['steps']} updates count; {left_out} (the very first took {seconds(first['first_step_s'])})",
        "rows of an update: copies x accumulation x rows of a micro-batch; tokens are of all together",
    ]


def table_of(found: Mapping[str, Any]) -> Table:
    """A line for each width; columns that nothing is known of are left out."""
    rows = [row for row in found["widths"] if row["repeats"]]
    columns = [(name, [cell(found, row) for row in rows]) for name, cell in COLUMNS.items()]
    columns = [(name, cells) for name, cells in columns if any(cells)]
    names = [name.format(unit=found["unit"], rate=found["rate_of"]) for name, _ in columns]
    shown = table(*names)
    for line in zip(*(cells for _, cells in columns), strict=True):
        shown.add_row(*line)
    return shown


def _width(found: Row, row: Row) -> str:
    return f"{row['width']}{MARK * bool(row.get('oversubscribed'))}"


def _rows(found: Row, row: Row) -> str:
    if "accumulation_steps" not in row:
        return ""
    parts = (row["copies"], row["accumulation_steps"], row["micro_batch_size"])
    return f"{row['global_batch_size']:,} = {'x'.join(map(str, parts))}"


def _step(found: Row, row: Row) -> str:
    if row["step_s"] is None:
        return ""
    scale, unit = (1, " s") if row["step_s"]["median"] >= 1 else (1000, " ms")
    return _spread(row["step_s"], lambda value: f"{value * scale:.3g}", unit)


def seconds(value: float) -> str:
    """`1.23 s`, `45 ms`."""
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"


def _rate(found: Row, row: Row) -> str:
    return "" if found["rate_of"] == "updates" else f"{row['rate']['median']:,.0f}"


def _real_rate(found: Row, row: Row) -> str:
    return "" if row["real_rate"] is None else f"{row['real_rate']:,.0f}"


def _efficiency(found: Row, row: Row) -> str:
    if row["width"] == found["base"]:
        return "100%"
    return _spread(row["efficiency"], lambda value: f"{value * 100:.0f}", "%")


def _waits(found: Row, row: Row) -> str:
    waits = row["communication"]
    return "" if waits is None else f"{waits['mean']:.0%}, {waits['worst']:.0%}"


def _serial(found: Row, row: Row) -> str:
    return "" if row["serial_fraction"] is None else f"{row['serial_fraction']['median']:.1%}"


def _planned(found: Row, row: Row) -> str:
    plan = row["predicted"]
    if plan is None:
        return ""
    reached = "" if plan["efficiency"] is None else f", {plan['efficiency']:.0%}"
    return f"{seconds(plan['step_s'])}{reached}"


def _against(found: Row, row: Row) -> str:
    return "" if row["predicted_by_actual"] is None else f"{row['predicted_by_actual']:.2f}"


def _cost(found: Row, row: Row) -> str:
    cost = row["usd_per_million_tokens"]
    return "" if cost is None else f"{cost:.4f}"


COLUMNS = {
    "{unit}": _width,
    "rows": _rows,
    "update": _step,
    "{rate}/s": _rate,
    "real": _real_rate,
    "efficiency": _efficiency,
    "waits, worst": _waits,
    "serial": _serial,
    "planned": _planned,
    "by actual": _against,
    "US$ a million": _cost,
}
"""Heading -> the cell of a width."""


def _spread(found: Mapping[str, float], text: Callable[[float], str], unit: str) -> str:
    """A median with its ends, where repeats differ."""
    low, middle, high = (text(found[name]) for name in ("low", "median", "high"))
    return f"{middle}{unit}" if low == high else f"{middle}{unit} ({low} to {high})"
