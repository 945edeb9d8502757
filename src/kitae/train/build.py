"""Puts the parts of an update together, as the recipe says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from kitae.backend.group import ALONE
from kitae.parallel.data_parallel import DataParallel
from kitae.parallel.shares import Shares
from kitae.recipe.schema import Recipe
from kitae.train.encoder_objectives import Classification, MaskedLM
from kitae.train.job import Phase, TrainJob
from kitae.train.objective import CausalLM, Objective
from kitae.train.optimizer import OPTIMIZERS
from kitae.train.precision import PRECISIONS
from kitae.train.step import Stepper

OBJECTIVES: dict[str, Callable[..., Objective]] = {
    "causal-lm": CausalLM,
    "masked-lm": MaskedLM,
    "classification": Classification,
}
"""By the recipe's `objective`."""

WIRE_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""What gradients travel in, by `parallel.reduce_dtype`."""


def build_objective(model: Any, recipe: Recipe) -> Objective:
    """What the model learns, as the recipe says."""
    objective = OBJECTIVES[recipe.objective]
    return objective(model, seed=recipe.seed, chunk_tokens=recipe.training.loss_chunk_tokens)


def build_stepper(job: TrainJob, phase: Phase) -> Stepper:
    """Turn the job's model into what the precision needs and give it an optimizer; `job` is resolved."""
    recipe, mesh, model = phase.recipe, job.mesh, job.model
    shares = Shares(model.layouts, mesh.data if recipe.parallel.zero1 else ALONE)
    weights = PRECISIONS[recipe.training.precision](model, shares)
    model.recompute = recipe.training.recompute
    compiled = job.backend.compile(model)
    if compiled is not None:
        job.report(compiled)
    replicas = DataParallel(
        dict(model.named_parameters()),
        shares,
        mesh.data,
        wire_dtype=WIRE_DTYPES[recipe.parallel.reduce_dtype],
        bucket_bytes=recipe.parallel.bucket_bytes,
        release=weights.release,
    )
    if mesh.data.size > 1:
        weights.on_sum = replicas.ready
    optimizer = OPTIMIZERS[recipe.optimizer.name](
        weights,
        {layout.name for layout in model.layouts if layout.decay},
        recipe.optimizer,
        fused=job.backend.fused_optimizer,
        seed=recipe.seed,
        shares=shares,
        mesh=mesh,
    )
    return Stepper(
        objective=build_objective(model, recipe),
        weights=weights,
        optimizer=optimizer,
        backend=job.backend,
        shares=shares,
        mesh=mesh,
        replicas=replicas,
        sequence_parallel=recipe.parallel.sequence_parallel,
        max_grad_norm=recipe.optimizer.max_grad_norm,
    )


def begin_phase(stepper: Stepper, phase: Phase, after: int) -> Stepper:
    """Go on with the weights after `after` updates, and with a new optimizer, as the phase says."""
    recipe, model = phase.recipe, stepper.objective.model
    model.recompute = recipe.training.recompute
    stepper.optimizer.begin(recipe.optimizer, after)
    return replace(
        stepper,
        objective=build_objective(model, recipe),
        max_grad_norm=recipe.optimizer.max_grad_norm,
    )
