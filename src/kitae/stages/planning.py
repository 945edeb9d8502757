"""The stage `plan`: what the training will hold in memory, before the text is read and a weight is loaded."""

from __future__ import annotations

from typing import Any

import psutil

from kitae.recipe.parallel import ParallelConfig
from kitae.stages.files import write_json
from kitae.stages.importing import Start, find_start
from kitae.stages.job import Job


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
    found = memory_plan(find_start(job), job.recipe.training.precision, job.recipe.parallel)
    job.report(f"plan: {memory_line(found)}")
    if _state_of_all(found) > found["host_memory_bytes"]:
        job.report("plan: warning: this does not fit into the memory of this machine; use a smaller model")
    write_json(job.run.path / "plan.json", found)
    return found
