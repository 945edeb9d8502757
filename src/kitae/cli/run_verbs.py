"""`kitae run` and the verbs of its stages."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kitae.cli.elsewhere import (
    DetachOption,
    NodesOption,
    PrintOption,
    TargetOption,
    flags_of,
    submitted,
)
from kitae.cli.recipe_verbs import SetOption
from kitae.cli.scale_option import ScaleDownOption, scaled, take_record

if TYPE_CHECKING:
    from kitae.stages.job import Job

StartOverOption = Annotated[
    bool, typer.Option("--start-over", help="Set the run's folder aside first, keeping it, and begin anew.")
]
RunArgument = Annotated[
    Path, typer.Argument(metavar="RECIPE|RUN", help="A recipe file, or the folder of a run.")
]

_STAGE_HELP = {
    "prepare": "Tokenise and pack the text of a recipe.",
    "import": "Bring the weights in and prove them against transformers.",
    "prove": "Prove the exported folder against transformers.",
}


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    verbs: dict[str, Callable[..., None]] = {"run": run, "train": train, "export": export}
    for name in ("run", "prepare", "import", "train", "export", "prove"):
        app.command(name, help=_STAGE_HELP.get(name))(verbs.get(name) or _stage_verb(name))


def run(
    recipe: RunArgument,
    changes: SetOption = [],  # noqa: B006
    start_over: StartOverOption = False,
    target: TargetOption = None,
    nodes: NodesOption = None,
    show: PrintOption = False,
    detach: DetachOption = False,
    scale_down: ScaleDownOption = None,
) -> None:
    """Take a recipe through all stages: plan, prepare, import, train, export, prove."""
    changes = scaled(recipe, [*changes, *flags_of(target, nodes)], scale_down, keep=not show)
    if submitted(recipe, changes, "prove", start_over, show, detach):
        return
    _run_all(_opened(recipe, changes, start_over))


def train(
    recipe: RunArgument,
    changes: SetOption = [],  # noqa: B006
    start_over: StartOverOption = False,
    target: TargetOption = None,
    nodes: NodesOption = None,
    show: PrintOption = False,
    detach: DetachOption = False,
    scale_down: ScaleDownOption = None,
) -> None:
    """Train, or go on training, after the stages before it."""
    changes = scaled(recipe, [*changes, *flags_of(target, nodes)], scale_down, keep=not show)
    if not submitted(recipe, changes, "train", start_over, show, detach):
        _run_stages(recipe, changes, "train", start_over)


def export(
    recipe: RunArgument,
    changes: SetOption = [],  # noqa: B006
    to: Annotated[
        Path | None, typer.Option(help="Write the newest checkpoint to this folder instead.")
    ] = None,
    scale_down: ScaleDownOption = None,
) -> None:
    """Write the run's newest checkpoint as a Hugging Face folder."""
    changes = scaled(recipe, changes, scale_down)
    if to is None:
        _run_stages(recipe, changes, "export", start_over=False)
        return
    from kitae.stages.exporting import export_to

    export_to(_open(recipe, changes), to)


def _stage_verb(name: str) -> Callable[..., None]:
    def verb(
        recipe: RunArgument,
        changes: SetOption = [],  # noqa: B006
        scale_down: ScaleDownOption = None,
    ) -> None:
        _run_stages(recipe, scaled(recipe, changes, scale_down), name, start_over=False)

    return verb


def _open(recipe: Path, changes: list[str]) -> Job:
    from kitae.stages.job import open_job
    from kitae.stages.report import Log

    log = Log()
    job = open_job(recipe, changes, report=log)
    log.attach(job.run.log)
    return job


def run_here(recipe: Path, changes: list[str], last: str) -> None:
    """Do the stages up to `last` on this machine; after all of them, say what came out."""
    if last == "prove":
        _run_all(_opened(recipe, changes, start_over=False))
    else:
        _run_stages(recipe, changes, last, start_over=False)


def _run_all(job: Job) -> None:
    """Do all stages, say what came out, and write the report, which a run that fails gets as well."""
    from kitae.stages.pipeline import run_stages
    from kitae.stages.summary import summary
    from kitae.watch.report.failed import report_on_failure

    with report_on_failure(job.run, job.report):
        run_stages(job)
    from kitae.watch.report.write import report_at_end

    for line in summary(job.run):
        job.report(line)
    report_at_end(job.run.path, job.report)


def _run_stages(recipe: Path, changes: list[str], last: str, start_over: bool) -> None:
    from kitae.stages.pipeline import run_stages

    run_stages(_opened(recipe, changes, start_over), last)


def _opened(recipe: Path, changes: list[str], start_over: bool) -> Job:
    """The job, in a folder of its own where it starts over."""
    refuse_launcher()
    job = _open(recipe, changes)
    return _set_aside(job, recipe, changes) if start_over else job


def refuse_launcher() -> None:
    """Raise `RecipeError` in a process of torchrun: all would do the same work in the same folder."""
    from kitae.errors import RecipeError

    processes = os.environ.get("WORLD_SIZE", "1")
    if "TORCHELASTIC_RUN_ID" in os.environ and processes != "1":
        raise RecipeError(
            f"torchrun started this {processes} times, but kitae starts its processes itself: leave torchrun "
            "out, and set parallel.data_parallel_size or parallel.tensor_parallel_size"
        )


def _set_aside(job: Job, recipe: Path, changes: list[str]) -> Job:
    from kitae.errors import RecipeError
    from kitae.stages.training import set_aside

    if recipe.is_dir():
        raise RecipeError(
            "--start-over needs the recipe's file: the run's folder, which holds its copy, is moved"
        )
    old = set_aside(job.run)
    if old is not None:
        job.report(f"the old run is now {old}")
        take_record(old, job.run.path)
    return _open(recipe, changes)
