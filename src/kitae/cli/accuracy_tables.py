"""`kitae plan --accuracy`: how earlier plans have done."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kitae.cli.plan_tables import console, table
from kitae.errors import RecipeError
from kitae.plan import history
from kitae.plan.calibration import load
from kitae.plan.history import Entry, Key
from kitae.plan.local import Local
from kitae.plan.phases import span
from kitae.plan.record import Family, Held, families, held, is_inside
from kitae.stages.planning import readable

_INSIDE = {True: "yes", False: "no", None: ""}


def show_accuracy(run: Path | None, *, json_wanted: bool) -> None:
    """Print the trainings of this user, or those of a run alone. Raises `RecipeError` when there are none."""
    entries = history.read()
    shown = [one for one in entries if run is None or Path(one.run) == run.absolute()]
    if not shown:
        what = "of any training" if run is None else f"of {run}"
        raise RecipeError(f"{history.history_path()} holds nothing {what}; trainings write it at their end")
    calibration = load()
    local = None if calibration is None else Local(calibration, entries)
    found = families(shown, local)
    if json_wanted:
        print(
            json.dumps({"trainings": [_facts(one) for one in shown], "families": _families(found)}, indent=2)
        )
        return
    out = console()
    lines = table(
        "ended", "run", "of", "update", "was", "error", "inside", "memory", "was", "error", "save, was"
    )
    for one in shown:
        lines.add_row(*_row(one))
    out.print(lines)
    summary = table("family", "trainings", "error", "inside", "learned", "interval now")
    for family in found:
        summary.add_row(*_summary(family))
    out.print(summary)


def _facts(entry: Entry) -> dict[str, Any]:
    errors = {name: one.error for name, one in held(entry).items()}
    return {**asdict(entry), "errors": errors, "inside": is_inside(entry)}


def _families(found: Sequence[Family]) -> list[dict[str, Any]]:
    return [asdict(one) for one in found]


def _row(entry: Entry) -> tuple[str, ...]:
    found = held(entry)
    step, memory, save = found["step_s"], found["memory_bytes"], found["checkpoint_s"]
    name = Path(entry.run).name + (f", {entry.phase}" if entry.phase else "")
    return (
        entry.time[:16].replace("T", " "),
        name if entry.attempt == 1 else f"{name} ({entry.attempt})",
        _of(entry.key),
        *_held(step, span),
        _INSIDE[is_inside(entry)],
        *_held(memory, lambda size: readable(round(size))),
        "" if save.actual is None else span(save.actual),
    )


def _held(one: Held, show: Callable[[float], str]) -> tuple[str, str, str]:
    return (
        "" if one.predicted is None else show(one.predicted),
        "" if one.actual is None else show(one.actual),
        "" if one.error is None else f"{one.error:+.1%}",
    )


def _summary(family: Family) -> tuple[str, ...]:
    key, learned = family.key, family.learned
    return (
        _of(key),
        str(family.trainings),
        "" if family.mean_error is None else f"{family.mean_error:.1%}",
        f"{family.inside} of {family.foreseen}",
        "" if learned is None else f"times {learned.factor:.3g} from {learned.runs}",
        "" if learned is None else f"a factor of {1 + learned.spread:.3g} either way",
    )


def _of(key: Key) -> str:
    cut = f", cut over {key.cut}" if key.cut > 1 else ""
    return f"{key.family}, {key.precision}, {key.ranks}{cut}"
