"""What was planned, against what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kitae.watch.report.blocks import Block, Fold, Table, Words
from kitae.watch.report.figures import NONE, number, percent, seconds, size, usd
from kitae.watch.report.run_view import RunView

Show = Callable[[float | None], str]
QUANTITIES: dict[str, tuple[str, Show]] = {
    "step_s": ("time of an update", seconds),
    "tokens_per_s": ("tokens/s", number),
    "memory_bytes": ("memory", size),
    "evaluate_s": ("an evaluation", seconds),
    "checkpoint_s": ("waiting for a save", seconds),
    "checkpoint_bytes": ("size of a checkpoint", size),
    "start_s": ("until the first update", seconds),
}
"""As `stages/accuracy.py` writes them."""
_ATTEMPTS = 12
"""Whose numbers are listed; the newest."""


def plan(view: RunView) -> Iterator[Block]:
    """The plan's sentence, its numbers against those that were measured, and what it took for granted."""
    estimate = view.plan.get("estimate") or {}
    if estimate.get("sentence"):
        yield Words(f"The plan said: {estimate['sentence']}")
    attempts = [one for one in view.accuracy.get("attempts", []) if isinstance(one, Mapping)]
    for one in attempts[-_ATTEMPTS:]:
        yield _held(one)
    yield from _money(view, estimate)
    assumed = estimate.get("assumptions") or []
    if assumed:
        yield Fold("What the plan took for granted", tuple(Words(str(one)) for one in assumed))


def _held(entry: Mapping[str, Any]) -> Table:
    predicted, actual = entry.get("predicted") or {}, entry.get("actual") or {}
    phase = f", phase {entry['phase']}" if entry.get("phase") else ""
    rows = [
        (
            words,
            show(predicted.get(name)),
            _interval(name, predicted, show),
            show(actual.get(name)),
            *_error(name, entry),
        )
        for name, (words, show) in QUANTITIES.items()
        if predicted.get(name) is not None or actual.get(name) is not None
    ]
    attempt, steps = entry.get("attempt", "?"), entry.get("steps", "?")
    return Table(
        f"attempt {attempt}{phase}: plan against the medians of {steps} updates",
        ("", "planned", "interval", "measured", "error of the plan", "inside"),
        tuple(rows),
    )


def _interval(name: str, predicted: Mapping[str, Any], show: Show) -> str:
    low, high = predicted.get(f"{name}_low"), predicted.get(f"{name}_high")
    return "" if low is None or high is None else f"{show(low)} to {show(high)}"


def _error(name: str, entry: Mapping[str, Any]) -> tuple[str, str]:
    predicted, actual = entry.get("predicted") or {}, entry.get("actual") or {}
    planned, came = predicted.get(name), actual.get(name)
    if not planned or not came:
        return NONE, ""
    low, high = predicted.get(f"{name}_low"), predicted.get(f"{name}_high")
    inside = "" if low is None or high is None else "yes" if low <= came <= high else "no"
    return percent(planned / came - 1, "+"), inside


def _money(view: RunView, estimate: Mapping[str, Any]) -> Iterator[Block]:
    bill = estimate.get("cost") or {}
    planned = None if bill.get("usd") is None else float(bill["usd"])
    if planned is not None or view.budget_usd is not None:
        yield Table(
            "money",
            ("", "planned", "spent on nodes", "budget"),
            (("US dollars", usd(planned), usd(view.status.cost_usd), usd(view.budget_usd)),),
        )
    lines = [
        (one["item"], one["how"], usd(None if one["usd"] is None else float(one["usd"])))
        for one in bill.get("lines", [])
    ]
    if lines:
        yield Fold(
            "The planned bill",
            (Table("what is paid for", ("item", "how", "US dollars"), tuple(lines), frozenset({0, 1})),),
        )
