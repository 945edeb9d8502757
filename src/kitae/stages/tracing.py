"""The programs of a recipe's ranks, traced by a process that has neither data nor weights nor peers.

It is one of its own, because it cannot run anything afterwards, and because it takes the CPU for the device
also where there are others. `python -m kitae.stages.tracing ORDER RESULT` is that process.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kitae import errors
from kitae.errors import KitaeError, PrecompileError, RecipeError
from kitae.stages.estimating import open_plan, shape_of, stretches, trainable
from kitae.stages.files import write_json

if TYPE_CHECKING:
    from kitae.precompile.hlo import Collective
    from kitae.precompile.tracing import TracedPhase

MACHINE = "trn1.32xlarge"
"""Whose devices an automatic number of copies takes."""
_CHANGES_KEYS = ("XLA_IR_DEBUG", "XLA_HLO_DEBUG", "NEURON_EXTRACT_GRAPHS_ONLY")


@dataclass(frozen=True)
class Order:
    """What is to be traced."""

    recipe: str
    changes: tuple[str, ...]
    instance: str
    rank: int


def trace_recipe(
    recipe: Path, changes: Sequence[str] = (), *, instance: str = MACHINE, rank: int = 0
) -> dict[str, Any]:
    """Programs, keys and collectives of one rank, for machines; also written beside the run.

    `runs/NAME/precompile/trace/` gets `trace.json`, which is what is returned, and `graphs.json`. Raises what
    the recipe or the model raises, `RecipeError` where torch-xla is missing.
    """
    order = Order(str(recipe.absolute()), tuple(changes), instance, rank)
    with tempfile.TemporaryDirectory() as name:
        asked, answered = Path(name) / "order.json", Path(name) / "result.json"
        asked.write_text(json.dumps(asdict(order)))
        command = [sys.executable, "-m", __name__, str(asked), str(answered)]
        done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
        if not answered.is_file():
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise PrecompileError(f"the process that traces ended with exit code {done.returncode}: {last}")
        found: dict[str, Any] = json.loads(answered.read_text())
    if "error" in found:
        kind: type[KitaeError] = getattr(errors, found["kind"])
        raise kind(found["error"])
    return found


def _environment() -> dict[str, str]:
    """Of the process: a CPU that plays one device, and nothing that would make keys others."""
    kept = {name: value for name, value in os.environ.items() if name not in _CHANGES_KEYS}
    return {**kept, "PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "1"}


def main(asked: Path, answered: Path) -> None:
    """Trace, and leave the result; does not return, as nothing here can be ended in order any more."""
    try:
        result = _traced(Order(**json.loads(asked.read_text())))
    except KitaeError as error:
        result = {"kind": type(error).__name__, "error": str(error)}
    answered.write_text(json.dumps(result))
    os._exit(0)


def _traced(order: Order) -> dict[str, Any]:
    from kitae.backend.xla import XlaBackend

    begin = time.perf_counter()
    reason = XlaBackend.unavailable()
    if reason is not None:
        raise RecipeError(f"--trace-only: {reason}")
    job = open_plan(Path(order.recipe), order.changes, rented_as=trainable(order.instance))
    shape = shape_of(job, guess=True)
    parts = stretches(job, shape)
    size = parts[0].work.world
    if not 0 <= order.rank < size:
        raise RecipeError(f"--rank {order.rank}: this training has ranks 0 to {size - 1}")
    from kitae.model.tables import parse_config
    from kitae.precompile.tracing import ToTrace, trace
    from kitae.stages.training import with_dropout

    config = parse_config(with_dropout(shape.config, job.recipe.training.dropout))
    recipes = [(name, recipe) for name, recipe in job.phases]
    phases = [(name, one, part.work) for (name, one), part in zip(recipes, parts, strict=True)]
    found = trace(ToTrace(config, shape.tied, phases), order.rank)
    result = {
        "recipe": job.recipe.name,
        "note": shape.note,
        "world": {
            "size": size,
            "tensor_parallel": parts[0].work.tensor_parallel,
            "data_parallel": parts[0].work.data_parallel,
            "rank": order.rank,
        },
        "phases": [_phase(one) for one in found],
        "seconds": round(time.perf_counter() - begin, 1),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    folder = job.run.path / "precompile" / "trace"
    write_json(folder / "trace.json", result)
    write_json(folder / "graphs.json", _graphs(found))
    return {**result, "folder": str(folder)}


def _phase(found: TracedPhase) -> dict[str, Any]:
    programs = [
        {
            "graph": one.graph,
            "key": one.key,
            "uses_per_update": found.uses.get(one.graph, 0),
            "operations": one.operations,
            "collectives": _listed(one.collectives),
        }
        for one in found.programs
    ]
    return {
        "name": found.name,
        "programs": programs,
        "update": _listed(found.update),
        "as_predicted": found.update == found.expected,
        "predicted": _listed(found.expected),
    }


def _listed(collectives: Counter[Collective]) -> list[dict[str, Any]]:
    return [{**asdict(one), "count": count} for one, count in sorted(collectives.items())]


def _graphs(phases: Sequence[TracedPhase]) -> Mapping[str, Any]:
    """As `precompile/ledger.py` writes them."""
    graphs = [
        {
            "phase": program.graph,
            "key": program.key,
            "inputs": [
                {"name": name, "shape": shape, "dtype": dtype.removeprefix("torch.")}
                for name, (shape, dtype) in program.inputs.items()
            ],
            "first_step": 0,
            "uses": phase.uses.get(program.graph, 1),
            **({} if phase.name is None else {"stretch": phase.name}),
        }
        for phase in phases
        for program in phase.programs
    ]
    return {"format": 1, "backend": "xla", "graphs": graphs}


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
