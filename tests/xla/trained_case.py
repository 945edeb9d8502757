"""Trains a tiny decoder on torch-xla's CPU, and traces the same training; a program of its own.

`python trained_case.py PRECISION ...` prints, by precision, the keys of both by graph.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "train"), str(HERE.parent / "support")]
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ |= {"PJRT_DEVICE": "CPU", "XLA_FLAGS": QUICK, "KITAE_CACHE": tempfile.mkdtemp()}


def made(precision: str) -> Any:
    """The training, and what is traced of it."""
    from tiny_training import job

    from kitae.plan.work import work_of
    from kitae.precompile.tracing import ToTrace
    from kitae.recipe.resolve import resolve
    from kitae.recipe.sources import HeldoutConfig

    training = {
        "duration": "2 steps",
        "global_batch_size": 6,
        "micro_batch_size": 2,
        "precision": precision,
    }
    trained = job(Path(tempfile.mkdtemp()), training=training, optimizer={"learning_rate": 0.01})
    recipe = resolve(trained.phases[0].recipe, backend="xla").recipe
    data = recipe.data.model_copy(update={"heldout": HeldoutConfig(fraction=0.1)})
    recipe, model = recipe.model_copy(update={"data": data}), trained.model
    work = work_of(recipe, model.config, model.tied, "xla")
    return trained, ToTrace(model.config, model.tied, [(None, recipe, work)])


def keys(precisions: list[str]) -> dict[str, Any]:
    """Those of the trainings, then those that are traced: afterwards nothing can be run."""
    from xla_case import on_xla

    from kitae.precompile.tracing import trace
    from kitae.train.loop import train

    found = {}
    traces = []
    for precision in precisions:
        trained, to_trace = made(precision)
        there = on_xla(trained)
        train(there)
        found[precision] = [{one.phase: one.key for one in there.backend.observer.entries}]
        traces.append(to_trace)
    for precision, to_trace in zip(precisions, traces, strict=True):
        (phase,) = trace(to_trace, 0)
        found[precision].append({one.graph: one.key for one in phase.programs})
    return found


if __name__ == "__main__":
    print(json.dumps(keys(sys.argv[1:])))
    sys.stdout.flush()
    os._exit(0)
