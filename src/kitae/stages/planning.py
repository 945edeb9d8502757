"""The stage `plan`: what the training will hold in memory, before the text is read and a weight is loaded."""

from __future__ import annotations

from typing import Any

import psutil

from kitae.stages.files import write_json
from kitae.stages.importing import Start, find_start
from kitae.stages.job import Job


def memory_plan(start: Start, precision: str) -> dict[str, Any]:
    """Bytes that one process holds for every parameter, by kind, and the parameter count."""
    from kitae.model.config import DecoderConfig
    from kitae.model.decoder import decoder_layouts
    from kitae.model.memory import count_parameters, state_bytes

    layouts = decoder_layouts(DecoderConfig.from_hf(start.config), start.tied)(1, 0)
    sizes = state_bytes(layouts, precision)
    return {
        "parameters": count_parameters(layouts),
        "precision": precision,
        "bytes": sizes,
        "state_bytes": sum(sizes.values()),
        "host_memory_bytes": psutil.virtual_memory().total,
    }


def memory_line(plan: dict[str, Any]) -> str:
    """The plan for a person: parameters, what each part takes, and of how much memory."""
    parts = ", ".join(f"{kind} {readable(size)}" for kind, size in plan["bytes"].items())
    return (
        f"{plan['parameters']:,} parameters in {plan['precision']}: {parts}; together "
        f"{readable(plan['state_bytes'])} of {readable(plan['host_memory_bytes'])}, activations come on top"
    )


def readable(size_bytes: int) -> str:
    """Bytes in the largest decimal unit that leaves at least 1, with three digits."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= size:
            return f"{size_bytes / size:.3g} {unit}"
    return f"{size_bytes} bytes"


def plan(job: Job, key: str) -> dict[str, Any]:
    """Work the plan out, say it and write `plan.json`; what goes into the run's record."""
    found = memory_plan(find_start(job), job.recipe.training.precision)
    job.report(f"plan: {memory_line(found)}")
    if found["state_bytes"] > found["host_memory_bytes"]:
        job.report("plan: warning: this does not fit into the memory of this machine; use a smaller model")
    write_json(job.run.path / "plan.json", found)
    return found
