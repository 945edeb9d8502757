"""What scaling measurements show, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kitae.scale.efficiency import Fit, Spread
from kitae.scale.share import Kind

UNSTEADY = 0.1
"""By how much repeats may differ without a word."""


@dataclass(frozen=True)
class Reached:
    """The efficiency of a width."""

    width: int
    efficiency: Spread
    crowded: bool = False
    """Whether threads outnumbered cores."""


def verdict(kind: Kind, unit: str, threshold: float, reached: Sequence[Reached]) -> str:
    """Up to which width efficiency is above the threshold; every width below has to be, too."""
    if len(reached) < 2:
        return f"{kind} scaling: nothing to compare: fewer than two numbers of {unit} were measured"
    good = _last_good(threshold, reached)
    best = reached[good]
    wanted = f"{threshold:.0%}"
    if good == 0:
        first = reached[1]
        text = f"already {counted(first.width, unit)} stay below {wanted} ({_said(first)})"
    else:
        text = f"up to {counted(best.width, unit)} above {wanted} ({_said(best)})"
        text += f"; {_said(reached[good + 1])}" if good + 1 < len(reached) else ""
    unsure = [one for one in reached[1:] if one.efficiency.low < threshold <= one.efficiency.high]
    if unsure:
        named = " and ".join(str(one.width) for one in unsure)
        text += f"; repeats at {named} lie on both sides of {wanted}"
    crowded = [str(one.width) for one in reached if one.crowded]
    if crowded:
        text += f"; at {' and '.join(crowded)}, more threads than cores"
    return f"{kind} scaling: {text}"


def counted(width: int, unit: str) -> str:
    """`1 worker`, `4 nodes`."""
    return f"{width} {unit.removesuffix('s') if width == 1 else unit}"


def _last_good(threshold: float, reached: Sequence[Reached]) -> int:
    """Place of the last width before the first that stays below."""
    bad = (place for place, one in enumerate(reached) if one.efficiency.median < threshold)
    return next(bad, len(reached)) - 1


def _said(one: Reached) -> str:
    low, high = one.efficiency.low, one.efficiency.high
    spread = "" if f"{low:.0%}" == f"{high:.0%}" else f", {low * 100:.0f} to {high:.0%}"
    return f"{one.efficiency.median:.0%} at {one.width}{spread}"


def remarks(
    kind: Kind,
    unit: str,
    rows: Sequence[Mapping[str, Any]],
    law: Fit | None,
    losses: Mapping[str, Any] | None,
) -> Iterator[str]:
    """What else is to be seen."""
    if law is not None:
        yield _law(law, rows, unit)
    if losses is not None:
        yield _same(losses)
    for row in rows:
        yield from _of_width(kind, unit, row)


def _law(law: Fit, rows: Sequence[Mapping[str, Any]], unit: str) -> str:
    base = min(row["width"] for row in rows if row["repeats"])
    error = "" if law.standard_error is None else f" +- {law.standard_error:.1%}"
    fitted = f"{law.law}, fitted to {counted(law.points, 'measurements')}"
    return (
        f"serial fraction {law.serial_fraction:.1%}{error} ({fitted}, of the time on {counted(base, unit)})"
    )


def _same(losses: Mapping[str, Any]) -> str:
    what = f"losses and gradient norms of the first {losses['updates']} updates differ by"
    if losses["equal"]:
        return (
            f"every width computed the same: {what} {losses['difference']:.1e} at most "
            f"(allowed: {losses['tolerance']:.0e})"
        )
    return (
        f"warning: {what} {losses['difference']:.1e} between widths, more than the "
        f"{losses['tolerance']:.0e} that another order of sums explains: these are not the same training"
    )


def _of_width(kind: Kind, unit: str, row: Mapping[str, Any]) -> Iterator[str]:
    where = counted(row["width"], unit)
    if row["failed"] is not None:
        yield f"{where}: failed: {row['failed']}"
    for one in row.get("slow", ()):
        yield (
            f"{where}: rank {one['rank']} on {one['node']} computes {one['ratio']:.2f} x as long as the "
            "others, which wait for it: look at what else runs there, or take the machine out"
        )
    if unit == "nodes" and 0 < row.get("hosts", 0) < row["width"]:
        yield f"{where}: they are {counted(row['hosts'], 'hosts')}, whose memory and network they share"
    if row.get("oversubscribed"):
        yield f"{where}: more threads than cores: this is not what as many machines would show"
    rate = row.get("rate", {})
    if "accumulation_steps" in row and rate["high"] / rate["low"] > 1 + UNSTEADY:
        yield (
            f"{where}: the fastest repeat is {rate['high'] / rate['low'] - 1:.0%} faster than the slowest: "
            "something else ran meanwhile, or --steps and --repeats are too few"
        )
    reached = row.get("efficiency")
    if reached is not None and reached["low"] > 1.02:
        yield f"{where}: more than 100 %: the smallest width is held back by something that is its own"
