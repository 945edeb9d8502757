"""Puts the parts of an update together, as the recipe says."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from kitae.backend.base import Backend
from kitae.backend.group import ALONE
from kitae.errors import RecipeError
from kitae.parallel.data_parallel import DataParallel
from kitae.parallel.shares import Shares
from kitae.recipe.schema import Recipe
from kitae.train.chip_attention import settle_attention
from kitae.train.encoder_objectives import Classification, MaskedLM
from kitae.train.forms import FORMS
from kitae.train.job import Phase, TrainJob
from kitae.train.late import Late, state_of
from kitae.train.lazy_optimizer import LAZY_OPTIMIZERS
from kitae.train.objective import CausalLM, Objective
from kitae.train.optimizer import OPTIMIZERS, Optimizer
from kitae.train.precision import PRECISIONS, Weights
from kitae.train.rounding import ByHardware, KeysThere, Rounding, RoundingKey
from kitae.train.step import AT_ONCE, Stepper

OBJECTIVES: dict[str, Callable[..., Objective]] = {
    "causal-lm": CausalLM,
    "masked-lm": MaskedLM,
    "classification": Classification,
}
"""By the recipe's `objective`."""

ROUNDING_SWITCH = "NEURON_RT_STOCHASTIC_ROUNDING_EN"
"""The variable with which a Trainium rounds by chance."""

WIRE_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""What gradients travel in, by `parallel.reduce_dtype`."""


def build_objective(model: Any, recipe: Recipe, *, static: bool = False) -> Objective:
    """What the model learns, as the recipe says; `static` as `Backend.static`."""
    objective = OBJECTIVES[recipe.objective]
    chunk_tokens = recipe.training.loss_chunk_tokens
    return objective(model, seed=recipe.seed, chunk_tokens=chunk_tokens, forms=FORMS[static])


def build_stepper(job: TrainJob, phase: Phase) -> Stepper:
    """Turn the job's model into what the precision needs and give it an optimizer; `job` is resolved."""
    recipe, mesh, model, backend = phase.recipe, job.mesh, job.model, job.backend
    shares = Shares(model.layouts, mesh.data if recipe.parallel.zero1 else ALONE)
    weights = PRECISIONS[recipe.training.precision](model, shares)
    model.recompute = recipe.training.recompute
    for told in (settle_attention(model, backend, recipe), backend.compile(model)):
        if told is not None:
            job.report(told)
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
    optimizer = _OPTIMIZERS[backend.lazy][recipe.optimizer.name](
        weights,
        {layout.name for layout in model.layouts if layout.decay},
        recipe.optimizer,
        fused=backend.fused_optimizer,
        seed=recipe.seed,
        shares=shares,
        mesh=mesh,
        rounding=_rounding(backend, weights, shares),
    )
    return Stepper(
        objective=build_objective(model, recipe, static=backend.static),
        weights=weights,
        optimizer=optimizer,
        backend=backend,
        shares=shares,
        mesh=mesh,
        replicas=replicas,
        sequence_parallel=recipe.parallel.sequence_parallel,
        max_grad_norm=recipe.optimizer.max_grad_norm,
        ending=Late(backend.device) if backend.lazy else AT_ONCE,
    )


_OPTIMIZERS: dict[bool, Mapping[str, type[Optimizer]]] = {False: OPTIMIZERS, True: LAZY_OPTIMIZERS}
"""By `Backend.lazy`."""


def _rounding(backend: Backend, weights: Weights, shares: Shares) -> Callable[[RoundingKey], Rounding]:
    """What turns an update's key into the rounding of updated weights."""
    if not weights.rounds_by_chance:
        return lambda key: key
    if backend.rounds_by_chance:
        _check_switch()
        return lambda key: ByHardware()
    if not backend.lazy:
        return lambda key: key
    tensors = [piece.tensor for layout in shares.layouts for piece in layout.pieces]
    return partial(KeysThere.of_all, tensors=tensors, device=backend.device)


def _check_switch() -> None:
    """Raise `RecipeError` where the device would round to the nearest."""
    if os.environ.get(ROUNDING_SWITCH) != "1":
        raise RecipeError(
            f"training.precision: bf16-sr is rounded by the device itself, which {ROUNDING_SWITCH}=1 turns "
            "on, before kitae starts: set it, or take bf16"
        )


def begin_phase(stepper: Stepper, phase: Phase, after: int) -> Stepper:
    """Go on with the weights after `after` updates, and with a new optimizer, as the phase says."""
    recipe, model = phase.recipe, stepper.objective.model
    model.recompute = recipe.training.recompute
    settle_attention(model, stepper.backend, recipe)
    stepper.optimizer.begin(recipe.optimizer, after)
    stepper.backend.boundary("begin", outputs=state_of(stepper))
    return replace(
        stepper,
        objective=build_objective(model, recipe, static=stepper.backend.static),
        max_grad_norm=recipe.optimizer.max_grad_norm,
    )
