"""The table of stages, and the loop that does those whose result is not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kitae.backend.table import BACKENDS
from kitae.stages import exporting, importing, planning, precompiling, training
from kitae.stages.job import Job
from kitae.stages.topology import check_cut, check_devices, check_rows, world_size
from kitae.train.tracking.table import check_trackers


@dataclass(frozen=True)
class Stage:
    """One stage: what its result depends on, whether it is there, and how it is made."""

    name: str
    key: Callable[[Job], str]
    is_there: Callable[[Job, str], bool]
    work: Callable[[Job, str], dict[str, Any]]
    applies: Callable[[Job, bool], bool] = lambda job, asked: True
    """Whether this job has it; `asked`: whether a person named it."""


def _prepare(job: Job, key: str) -> dict[str, Any]:
    found = [training.prepared(job, recipe) for _, recipe in job.phases]
    for data in found:
        for warning in data.card["warnings"] if data.reused else ():  # fresh data has said them already
            job.report(f"prepare: warning: {warning}")
    last = found[-1]
    folders = {} if len(found) == 1 else {"folders": [str(data.folder) for data in found]}
    reused = all(data.reused for data in found)
    return {"folder": str(last.folder), **folders, "reused": reused, "rows": len(last.train)}


STAGES = (
    Stage(
        "plan",
        planning.plan_key,
        lambda job, key: (job.run.path / "plan.json").is_file(),
        planning.plan,
    ),
    Stage(
        "prepare",
        lambda job: job.data_key,
        lambda job, key: all((job.cache / "data" / one / "card.json").is_file() for one in job.data_keys),
        _prepare,
    ),
    Stage("import", importing.import_key, importing.is_imported, importing.import_weights),
    Stage(
        "precompile",
        precompiling.precompile_key,
        precompiling.is_precompiled,
        precompiling.precompile,
        precompiling.applies,
    ),
    Stage("train", training.train_key, training.is_trained, training.train_model),
    Stage("export", exporting.export_key, exporting.is_exported, exporting.export_model),
    Stage("prove", exporting.prove_key, exporting.is_proven, exporting.prove_export),
)


def run_stages(job: Job, last: str = "prove") -> list[str]:
    """Take the run through the stages up to `last`; the names of those that had to be done."""
    done: list[str] = []
    job.run.facts["last"] = last
    with job.run.attempt(lambda: _refuse(job)):
        for warning in job.warnings:
            job.report(f"warning: {warning}")
        _check_topology(job, last)
        for stage in STAGES:
            asked = stage.name == last
            if stage.applies(job, asked) and _needs_work(job, stage):
                done.append(stage.name)
            if asked:
                break
    return done


def _refuse(job: Job) -> None:
    """Before any stage, so that none leaves the result of another recipe in the run."""
    training.refuse_other_training(job)
    precompiling.refuse_collecting(job)


def _check_topology(job: Job, last: str) -> None:
    """Raise `RecipeError` now, not after an hour of reading text; devices only count where one is run."""
    cut = job.recipe.parallel.tensor_parallel_size > 1
    if cut or job.recipe.objective != "causal-lm":
        config = importing.find_start(job).config
        for phase, recipe in job.phases:
            check_rows(phase, recipe, config)
            if cut:
                check_cut(recipe, config)
    names = [stage.name for stage in STAGES]
    train = STAGES[names.index("train")]
    # To compile ahead is to train a little.
    if names.index(last) >= names.index("precompile") and not is_done(job, train):
        here = world_size(job.recipe) // job.recipe.target.most
        for warning in check_devices(here, BACKENDS[job.backend]):
            job.report(f"warning: {warning}")
        check_trackers(job.recipe.tracking.trackers)


def is_done(job: Job, stage: Stage, key: str | None = None) -> bool:
    """Whether the run has the result of a stage, made from what the stage would read now."""
    recorded = job.run.stage(stage.name).get("key")
    return recorded is not None and recorded == (key or stage.key(job)) and stage.is_there(job, recorded)


def _needs_work(job: Job, stage: Stage) -> bool:
    """Do the stage unless its result is there; whether there was anything to do."""
    key = stage.key(job)
    if is_done(job, stage, key):
        job.report(f"{stage.name}: skipped, its result is there")
        return False
    record = stage.work(job, key)
    job.run.finish(stage.name, key, record)
    if record.get("reused"):
        job.report(f"{stage.name}: found in {record['folder']}")
    return True
