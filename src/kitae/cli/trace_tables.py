"""`kitae precompile --trace-only`: a rank's programs and what they exchange in an update, for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kitae.cli.plan_tables import console, table
from kitae.errors import PrecompileError
from kitae.stages.planning import readable
from kitae.stages.tracing import MACHINE, trace_recipe


def trace_only(
    recipe: Path, changes: Sequence[str], *, instance: str | None, rank: int, as_json: bool
) -> None:
    """Print them. Raises `PrecompileError` where they exchange something else than is predicted."""
    found = trace_recipe(recipe, changes, instance=instance or MACHINE, rank=rank)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _show(found)
    wrong = [difference for phase in found["phases"] for difference in _differences(phase)]
    if wrong:
        raise PrecompileError(
            "the programs do not exchange what layout, mesh and recipe predict, which is an error of kitae: "
            + "; ".join(wrong)
        )


def _show(found: Mapping[str, Any]) -> None:
    out, world = console(), found["world"]
    out.print(
        f"rank {world['rank']} of {world['size']} (data parallel {world['data_parallel']} x tensor parallel "
        f"{world['tensor_parallel']}), traced without data, weights and other ranks",
        highlight=False,
    )
    for phase in found["phases"]:
        out.print(_programs(phase))
        out.print(_exchanged(phase))
    if found["note"]:
        out.print(f"assumed: {found['note']}", style="dim", highlight=False)
    out.print(
        f"{found['seconds']:g} s, {readable(found['peak_bytes'])} of memory at most; all of it is in "
        f"{found['folder']}",
        highlight=False,
    )


def _programs(phase: Mapping[str, Any]) -> Any:
    title = "program" if phase["name"] is None else f"program, phase {phase['name']}"
    shown = table(title, "key", "in an update", "operations", "collectives")
    for one in phase["programs"]:
        uses, collectives = one["uses_per_update"], sum(each["count"] for each in one["collectives"])
        shown.add_row(
            one["graph"],
            one["key"],
            f"{uses:,}" if uses else "",
            f"{one['operations']:,}",
            f"{collectives:,}",
        )
    return shown


def _exchanged(phase: Mapping[str, Any]) -> Any:
    shown = table("in an update", "times", "bytes that a rank gives", "groups")
    for one in phase["update"]:
        shown.add_row(
            one["kind"], f"{one['count']:,}", f"{one['bytes_in']:,}", groups_in_words(one["groups"])
        )
    return shown


def groups_in_words(groups: Sequence[Sequence[int]]) -> str:
    """How many groups of how many ranks, and the first: `4 of 32: 0-31 ...`."""
    first = groups[0]
    step = first[1] - first[0] if len(first) > 1 else 1
    named = f"{first[0]}-{first[-1]}" if step == 1 else f"{first[0]}-{first[-1]} by {step}"
    more = " ..." if len(groups) > 1 else ""
    return f"{len(groups)} of {len(first)}: {named}{more}"


def _differences(phase: Mapping[str, Any]) -> list[str]:
    if phase["as_predicted"]:
        return []
    sides = [
        {(one["kind"], groups_in_words(one["groups"]), one["bytes_in"]): one["count"] for one in phase[side]}
        for side in ("update", "predicted")
    ]
    return [
        f"{kind} of {size:,} bytes among {groups}: {sides[0].get(one, 0)}, predicted {sides[1].get(one, 0)}"
        for one in sorted({*sides[0], *sides[1]})
        if sides[0].get(one, 0) != sides[1].get(one, 0)
        for kind, groups, size in [one]
    ]
