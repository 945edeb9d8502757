"""Options that say where stages run, and recipes that are submitted instead of being run here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target", metavar="local|slurm|ssh", help="Where to run it, instead of what the recipe says."
    ),
]
NodesOption = Annotated[
    str | None, typer.Option("--nodes", metavar="N|MIN-MAX", help="Nodes to train on, such as 4 or 2-4.")
]
PrintOption = Annotated[
    bool, typer.Option("--print", help="Show the scripts of the jobs, and submit nothing.")
]
DetachOption = Annotated[
    bool, typer.Option("--detach", help="With target ssh: submit, and do not follow the run.")
]


def flags_of(kind: str | None, nodes: str | None) -> Sequence[str]:
    """What `--target` and `--nodes` mean as `--set` flags; nodes are `3` or `2-4`."""
    if kind == "local":
        nodes = nodes or "1"
    least, dash, most = (nodes or "").partition("-")
    several = f"target.nodes={{min: {least}, max: {most}}}" if dash else f"target.nodes={nodes}"
    return [*([f"target.kind={kind}"] if kind else ()), *([several] if nodes else ())]


def submitted(
    recipe: Path,
    changes: Sequence[str],
    last: str,
    start_over: bool,
    show: bool,
    detach: bool = False,
    compiling: Sequence[str] = (),
) -> bool:
    """Submit the stages up to `last`, or show how, where the target is not here; whether that was so.

    `compiling` are further words for the job that compiles graphs.
    """
    from kitae.cli.ssh_verbs import over_ssh
    from kitae.errors import RecipeError
    from kitae.launch.slurm.chain import Submission, recipe_file
    from kitae.recipe.load import load_recipe
    from kitae.stages.run_folder import RunFolder
    from kitae.stages.training import set_aside

    file = recipe_file(recipe)
    if recipe.is_dir() and not file.is_file():
        return False  # what is done here will say it
    kind = load_recipe(file, changes).recipe.target.kind
    if kind == "local":
        if show:
            raise RecipeError("--print shows the scripts of jobs; with target.kind local there are none")
        return False
    if start_over:
        _refuse_run(recipe)
    if kind == "ssh" and compiling:
        raise RecipeError(
            "--jobs, --retries and --retry-failed do not reach a cluster behind a head node; leave them out, "
            "or run kitae precompile on the head node"
        )
    if kind == "ssh":
        over_ssh(recipe, changes, last, start_over=start_over, show=show, detach=detach)
        return True
    submission = Submission.of(recipe, changes, report=print, compiling=compiling)
    if show:
        submission.show(last)
        return True
    if start_over:
        submission.refuse_running()
        old = set_aside(RunFolder(submission.run))
        print(f"the old run is now {old}" if old is not None else "there was no run of that name")
    submission.submit(last)
    return True


def _refuse_run(recipe: Path) -> None:
    from kitae.errors import RecipeError

    if recipe.is_dir():
        raise RecipeError(
            "--start-over needs the recipe's file: the run's folder, which holds its copy, is moved"
        )
