"""Where it began that a value is not finite, found out on the host, which need not compile it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from kitae.backend.base import Backend
from kitae.parallel.mesh import Mesh
from kitae.train.batch import AnyMicroBatch, GlobalBatch, inputs_of
from kitae.train.finite import Forward, NotFiniteError, explain

if TYPE_CHECKING:
    from kitae.train.step import Stepper


def explain_aside(stepper: Stepper, batch: GlobalBatch[Any], step: int) -> NotFiniteError:
    """`train.finite.explain` for an update; the model is on the host afterwards, as the training is over."""
    device = stepper.backend.side_device()
    there = batch.counts_there
    moved = replace(batch, counts_there=None if there is None else there.to(device))
    return explain_moved(
        stepper.objective.model,
        stepper.loss_of(moved, step),
        batch.micro_batches,
        f"step {step}",
        backend=stepper.backend,
        mesh=stepper.mesh,
    )


def explain_moved(
    model: Any,
    forward: Forward,
    parts: tuple[AnyMicroBatch, ...],
    when: str,
    *,
    backend: Backend,
    mesh: Mesh,
    backward: bool = True,
) -> NotFiniteError:
    """`train.finite.explain` where the backend does such work; a model that is cut cannot move there."""
    if mesh.tensor.size > 1 and backend.lazy:
        return NotFiniteError(
            f"{when}: loss or gradients are not finite; in which part of a model that is cut over "
            f"{mesh.tensor.size} ranks is not looked for on {backend.name}; lower optimizer.learning_rate or "
            "lengthen schedule.warmup; metrics so far and the last checkpoint are kept"
        )
    device = backend.side_device()
    model.to(device)
    there = [_moved(part, device) for part in parts]
    return explain(model, forward, there, when, backward=backward, mesh=mesh)


def _moved(part: Any, device: torch.device) -> Any:
    return replace(part, **{name: one.to(device) for name, one in inputs_of(part).items()})
