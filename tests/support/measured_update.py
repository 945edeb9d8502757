"""Updates of small models in this process, and how many bytes torch's allocator held at their fullest."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from kitae.backend.group import ALONE
from kitae.backend.table import select
from kitae.calibrate.trial import RandomRows
from kitae.data.examples import Sample
from kitae.model.architecture import architecture_of, parse_config
from kitae.model.init import initialise
from kitae.parallel.data_parallel import DataParallel
from kitae.parallel.mesh import Mesh
from kitae.parallel.shares import Shares
from kitae.plan.work import Work, work_of
from kitae.recipe.schema import Recipe
from kitae.train.batch import global_batch
from kitae.train.build import OBJECTIVES
from kitae.train.optimizer import OPTIMIZERS
from kitae.train.precision import PRECISIONS
from kitae.train.step import Stepper

CPU = torch.device("cpu")


def work_for(config: dict[str, Any], **training: Any) -> Work:
    """A recipe's work on one CPU; `training` are fields of that section, and objective, length, optimizer."""
    parsed = parse_config(config)
    return work_of(recipe_for(**training), parsed, parsed.tie_word_embeddings, "cpu")


def recipe_for(**training: Any) -> Recipe:
    """The recipe of such a work."""
    objective = training.pop("objective", "causal-lm")
    data: dict[str, Any] = {"train": [{"path": "x"}], "sequence_length": training.pop("length", 64)}
    data["document_mask"] = training.pop("document_mask", False)
    if objective == "classification":
        data["labels"] = {"field": "label"}
    optimizer = {"name": training.pop("optimizer", "adamw")}
    return Recipe.model_validate(
        {
            "kitae": 1,
            "name": "tiny",
            "objective": objective,
            "model": {"folder": "model"},
            "data": data,
            "optimizer": optimizer,
            "training": {"duration": "1 steps", "precision": "fp32", **training},
            "parallel": {"data_parallel_size": 1, "zero1": False},
        }
    )


def measured_peak(work: Work, updates: int = 1) -> int:
    """Most bytes that tensors take at once during updates: state, activations and all that is in between."""
    select("cpu")  # what it tries out once is no part of an update
    select("cpu")  # what it tries out once is no part of an update
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen:
        stepper = _stepper(work)
        rows = RandomRows(work)
        samples = [Sample(number) for number in range(work.global_rows)]
        for step in range(1, updates + 1):
            batch = global_batch(rows, samples, work.rows, CPU, tensors=stepper.objective.tensors)
            stepper.update(batch, 1e-3, step=step)
    sizes = [event.nbytes() for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    return int(np.max(np.cumsum(sizes)))


def _stepper(work: Work) -> Stepper:
    kind = architecture_of(work.config)
    model: Any = kind.build(work.config, tied=work.tied, dtype=torch.float32, device="cpu")
    initialise(dict(model.named_parameters()), model.layouts, seed=0, std=0.02)
    shares, mesh = Shares(model.layouts, ALONE), Mesh()
    weights = PRECISIONS[work.precision](model, shares)
    model.recompute = work.recompute
    config = Recipe.model_validate(
        {
            "kitae": 1,
            "name": "x",
            "model": {"folder": "m"},
            "data": {"train": [{"path": "x"}]},
            "training": {"duration": "1 steps"},
            "optimizer": {"name": work.optimizer},
        }
    ).optimizer
    decayed = {one.name for one in model.layouts if one.decay}
    return Stepper(
        objective=OBJECTIVES[work.objective](model, seed=0, chunk_tokens=work.chunk_tokens),
        weights=weights,
        optimizer=OPTIMIZERS[work.optimizer](
            weights, decayed, config, fused=True, seed=0, shares=shares, mesh=mesh
        ),
        backend=select("cpu"),
        shares=shares,
        mesh=mesh,
        replicas=DataParallel(
            dict(model.named_parameters()), shares, mesh.data, wire_dtype=torch.float32, bucket_bytes=1 << 20
        ),
        sequence_parallel=False,
        max_grad_norm=1.0,
    )
