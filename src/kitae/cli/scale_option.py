"""The option `--scale-down`, which many verbs have: a recipe made small, and what was changed told."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

ScaleDownOption = Annotated[
    str | None,
    typer.Option(
        "--scale-down",
        metavar="cpu",
        help="Make the recipe small enough for this machine, and say what changed.",
    ),
]


def scaled(
    recipe: Path, changes: Sequence[str], to: str | None, *, quiet: bool = False, keep: bool = True
) -> list[str]:
    """The `--set` flags of a recipe, with those that make it small where that is asked for.

    The changes are printed, on stderr with `quiet`; `keep` makes inputs, and leaves a record in the run.
    """
    if to is None:
        return list(changes)
    from kitae.stages.small import keep as keep_record
    from kitae.stages.small import lines_of, run_of, small_recipe

    found, flags = small_recipe(recipe, changes, to, make=keep)
    out = sys.stderr if quiet else sys.stdout
    told = lines_of(found.changes)
    print(f"scaled down to {to}: {len(told)} changes of {recipe}", *told, sep="\n", file=out, flush=True)
    if keep:
        keep_record(run_of(recipe, flags), recipe, found.changes)
    return flags


def take_record(old: Path, new: Path) -> None:
    """Take the record of what was scaled down from a run that was set aside into the one that begins anew."""
    from kitae.stages.small import RECORD
    from kitae.storage.files import replace_file

    if (old / RECORD).is_file():
        replace_file(new / RECORD, (old / RECORD).read_bytes())
