"""How an update ends where operations are collected: all on the device, and what it shows is read later.

Nothing here is decided by a value of the device. Whether loss and gradients are finite becomes a factor of
0 or 1 of everything that would change the weights or the optimizer's state. Once it is 0 it stays so: the
updates that were begun before anybody knew change nothing either, and the weights are those of before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from kitae.backend.base import Tensors
from kitae.train.aside import explain_aside
from kitae.train.batch import GlobalBatch
from kitae.train.lazy_optimizer import LazyOptimizer
from kitae.train.optimizer import MOMENTS
from kitae.train.step import Check, Gradients, Stepper, Underway, Update


class Late:
    """Leaves an update on the device. One object a training."""

    def __init__(self, device: torch.device) -> None:
        self._going = torch.ones(1).to(device)  # a single number would be written into the graph

    def update(
        self, stepper: Stepper, batch: GlobalBatch[Any], learning_rate: float, step: int, check: Check
    ) -> Underway:
        """See `train.step.Ending`."""
        shown, inputs = self._applied(stepper, stepper.gradients(batch, step, check), learning_rate)
        stepper.weights.clear_gradients()
        made = [shown, self._going, *state_of(stepper)]
        stepper.backend.boundary("update", inputs, made)
        return _Shown(stepper, batch, step, shown)

    def backward(self, loss: torch.Tensor) -> None:
        """Add to the gradients; none of them is finite when the loss is not, so that all ranks see it."""
        kept = loss.detach()
        loss.backward(torch.where(kept.isfinite(), 1.0, math.nan).to(kept.dtype))  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def _applied(
        self, stepper: Stepper, gradients: Gradients, learning_rate: float
    ) -> tuple[torch.Tensor, Tensors]:
        """Change the weights; losses and norm to be read, and what the graph is fed with."""
        norm = gradients.norm
        self._going = torch.where(norm.isfinite(), self._going, 0.0)
        factor, most = self._going, stepper.max_grad_norm
        if most is not None:
            factor = factor * torch.where(norm > most, most / norm, 1.0)
        going = self._going > 0
        scaled = {name: torch.where(going, one * factor, 0.0) for name, one in gradients.of_rows.items()}
        assert isinstance(stepper.optimizer, LazyOptimizer)
        inputs = stepper.optimizer.step_if(self._going, learning_rate, scaled)
        stepper.publish()
        return torch.stack((*gradients.losses, norm)), inputs


def state_of(stepper: Stepper) -> list[torch.Tensor]:
    """All that an update changes, in a fixed order."""
    found = dict(stepper.objective.model.named_parameters())
    masters = stepper.weights.masters
    own = [one for name, one in masters.items() if one is not found.get(name)]
    moments = (one for kind in MOMENTS for one in stepper.optimizer.moments(kind).values())
    return [*found.values(), *own, *moments]


@dataclass(frozen=True)
class _Shown:
    """An update whose losses and norm are on the device."""

    stepper: Stepper
    batch: GlobalBatch[Any]
    step: int
    values: torch.Tensor

    def result(self) -> Update:
        """See `Underway`."""
        *parts, norm = self.values.cpu().tolist()
        if self.stepper.backend.pretends:
            return Update(0.0, 0.0)  # nothing was computed
        loss = self.stepper.of_all(parts)
        if math.isfinite(loss + norm):
            return Update(loss, norm)
        raise explain_aside(self.stepper, self.batch, self.step)
