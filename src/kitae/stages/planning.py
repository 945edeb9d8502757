"""The stage `plan`: what the training will hold in memory, before the text is read and a weight is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psutil

from kitae.recipe.parallel import ParallelConfig
from kitae.stages.files import key_of, write_json
from kitae.stages.importing import find_start, import_key
from kitae.stages.job import Job, Report

if TYPE_CHECKING:
    from kitae.plan.estimate import Estimate


class Start(Protocol):
    """What a plan needs to know of the model."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Hugging Face config.json."""
        ...

    @property
    def tied(self) -> bool:
        """Whether the head is the embedding."""
        ...


def plan_key(job: Job) -> str:
    """Key of the stage: the weights to start from, how they are trained, and how that is spread."""
    return key_of(
        {
            "import": import_key(job),
            "training": job.recipe.training.model_dump(),
            "parallel": job.recipe.parallel.model_dump(),
        }
    )


def memory_plan(start: Start, precision: str, parallel: ParallelConfig) -> dict[str, Any]:
    """Bytes for every parameter, by kind, in the process that holds most, and the model's parameter count."""
    from kitae.model.memory import count_parameters, state_bytes
    from kitae.model.tables import table_of
    from kitae.parallel.rows import share_layouts

    table = table_of(start.config, start.tied)
    copies, cuts = parallel.data_parallel_size, parallel.tensor_parallel_size
    assert copies != "auto", "the recipe is resolved"
    local = table(cuts, 0)
    # The first copy has the most rows.
    sizes = state_bytes(local, share_layouts(local, copies if parallel.zero1 else 1, 0), precision)
    return {
        "parameters": count_parameters(table(1, 0)),
        "precision": precision,
        "data_parallel_size": copies,
        "tensor_parallel_size": cuts,
        "zero1": parallel.zero1,
        "bytes": sizes,
        "state_bytes": sum(sizes.values()),
        "host_memory_bytes": psutil.virtual_memory().total,
    }


def memory_line(plan: dict[str, Any]) -> str:
    """The plan for a person: parameters, what each part takes, and of how much memory."""
    parts = ", ".join(f"{kind} {readable(size)}" for kind, size in plan["bytes"].items())
    copies, cuts = plan["data_parallel_size"], plan["tensor_parallel_size"]
    model = f"{plan['parameters']:,} parameters in {plan['precision']}"
    total = (
        f"{readable(_state_of_all(plan))} of {readable(plan['host_memory_bytes'])}, activations come on top"
    )
    if copies * cuts == 1:
        return f"{model}: {parts}; together {total}"
    shared = " that share the optimizer state" if plan["zero1"] else ""
    return (
        f"{model}, {copies * cuts} processes: {copies} x the model{shared}, each on {cuts}. "
        f"A process: {parts}; together {readable(plan['state_bytes'])}. All: {total}"
    )


def _state_of_all(plan: dict[str, Any]) -> int:
    size: int = plan["state_bytes"] * plan["data_parallel_size"] * plan["tensor_parallel_size"]
    return size


def readable(size_bytes: int) -> str:
    """Bytes in the largest decimal unit that leaves at least 1, with three digits."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= size:
            return f"{size_bytes / size:.3g} {unit}"
    return f"{size_bytes} bytes"


def plan(job: Job, key: str) -> dict[str, Any]:
    """Work the plan out, say it and write `plan.json`; what goes into the run's record."""
    return _plan(job, find_start(job))[0]


def plan_here(
    path: Path, overrides: Sequence[str] = (), *, report: Report = print
) -> tuple[dict[str, Any], Estimate | None]:
    """Do the stage of a recipe or a run, on its own and without torch; its record, and the estimate."""
    from kitae.stages.estimating import open_plan, shape_of
    from kitae.stages.training import refuse_other_training

    job = open_plan(path, overrides, report=report)
    with job.run.attempt(lambda: refuse_other_training(job)):
        for warning in job.warnings:
            job.report(f"warning: {warning}")
        shape = shape_of(job, guess=True)
        found, estimate = _plan(job, shape, shape.notes)
        # A stage is done when it has read what its key is of; with a guess, the run plans again.
        if not shape.notes:
            job.run.finish("plan", plan_key(job), found)
    return found, estimate


def _plan(job: Job, start: Start, notes: Sequence[str] = ()) -> tuple[dict[str, Any], Estimate | None]:
    from kitae.plan.facts import as_json

    found = memory_plan(start, job.recipe.training.precision, job.recipe.parallel)
    estimate = _estimate(job, start)
    job.report(f"plan: {memory_line(found)}")
    for note in notes:
        job.report(f"plan: assumed: {note}")
    if _state_of_all(found) > found["host_memory_bytes"]:
        job.report(f"plan: {_too_large(job)}")
    elif estimate is not None:
        job.report(f"plan: {estimate.sentence}")
    found = {**found, "estimate": None if estimate is None else as_json(estimate, *notes)}
    write_json(job.run.path / "plan.json", {**found, "experience": _experience(estimate)})
    return found, estimate


def _too_large(job: Job) -> str:
    """What is said of a model that this machine cannot hold, which may not have to."""
    kind = job.recipe.target.kind
    if kind == "local":
        what = "warning: this does not fit into the memory of this machine; use a smaller model"
        return f"{what}, or --scale-down cpu"
    return (
        f"it trains elsewhere (target.kind {kind}): kitae plan --instance NAME --nodes N says whether it "
        "fits there; --scale-down cpu makes it small enough for this machine"
    )


def _experience(estimate: Estimate | None) -> list[dict[str, Any]]:
    """What later plans learn from, once it is known how the training went; by phase."""
    from kitae.plan.local import experience

    if estimate is None:
        return []
    return [{"phase": one.name, "fields": experience(one.work, estimate.machine)} for one in estimate.phases]


def _estimate(job: Job, start: Start) -> Estimate | None:
    """With activations and time; None where it runs elsewhere, or on a GPU whose size only torch knows."""
    from kitae.stages.estimating import Shape, estimate_of, machine_of

    if job.recipe.target.kind != "local" or job.backend != "cpu":
        return None
    return estimate_of(job, Shape(dict(start.config), start.tied), machine_of(job, None))
