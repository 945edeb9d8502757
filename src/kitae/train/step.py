"""One optimizer update: forward and backward over the micro-batches, and how it is brought to an end.

`Ending` is what differs between a machine that computes at once and one that collects graphs: `AtOnce` here
reads loss and norm back and decides by them; `train.late` leaves both on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kitae.backend.base import Backend
from kitae.parallel.data_parallel import DataParallel
from kitae.parallel.gradients import global_norm, sum_copies
from kitae.parallel.mesh import Mesh, sum_over_copies
from kitae.parallel.shares import Shares
from kitae.train.batch import AnyMicroBatch, GlobalBatch, inputs_of
from kitae.train.finite import explain
from kitae.train.objective import Objective
from kitae.train.optimizer import Optimizer, clip
from kitae.train.precision import Weights

Check = Callable[[], None]
"""Called before each micro-batch; may raise, and the weights are then those of the step before."""


@dataclass(frozen=True)
class Update:
    """What one update shows."""

    loss: float
    """Mean over what the global batch has to predict, nats."""
    grad_norm: float
    """Global norm before clipping."""


@dataclass(frozen=True)
class Gradients:
    """What the micro-batches of an update leave."""

    losses: list[torch.Tensor]
    """Shares of the loss, by micro-batch of this rank."""
    of_rows: dict[str, torch.Tensor]
    """Sums over all ranks for the rows that this rank updates, fp32, by parameter."""
    norm: torch.Tensor
    """Global norm, the same on all ranks."""


class Underway(Protocol):
    """An update that was begun."""

    def result(self) -> Update:
        """What it shows, once that is known. Raises `TrainingError` when loss or gradients are not finite."""
        ...


class Ending(Protocol):
    """How an update goes, from a batch to new weights."""

    def update(
        self, stepper: Stepper, batch: GlobalBatch[Any], learning_rate: float, step: int, check: Check
    ) -> Underway:
        """Train on a global batch; afterwards `step` updates are done, or will be."""
        ...

    def backward(self, loss: torch.Tensor) -> None:
        """Add to the gradients."""
        ...


@dataclass(frozen=True)
class Known:
    """An update that is done."""

    update: Update

    def result(self) -> Update:
        """What it shows."""
        return self.update


class AtOnce:
    """Reads loss and norm, and changes the weights only when they are finite."""

    def update(
        self, stepper: Stepper, batch: GlobalBatch[Any], learning_rate: float, step: int, check: Check
    ) -> Underway:
        """See `Ending`."""
        gradients = stepper.gradients(batch, step, check)
        *parts, norm = torch.stack(
            (*gradients.losses, gradients.norm)
        ).tolist()  # the one wait for the device
        loss = stepper.of_all(parts)
        if not math.isfinite(loss + norm):
            del gradients  # what follows needs the memory for a backward pass of its own
            stepper.weights.clear_gradients()
            raise explain(
                stepper.objective.model,
                stepper.loss_of(batch, step),
                batch.micro_batches,
                f"step {step}",
                mesh=stepper.mesh,
            )
        self._apply(stepper, gradients.of_rows, norm, learning_rate)
        return Known(Update(loss, norm))

    def backward(self, loss: torch.Tensor) -> None:
        """See `Ending`."""
        loss.backward()  # type: ignore[no-untyped-call]

    def _apply(
        self, stepper: Stepper, gradients: Mapping[str, torch.Tensor], norm: float, learning_rate: float
    ) -> None:
        clip(list(gradients.values()), norm, stepper.max_grad_norm)
        stepper.optimizer.step(learning_rate, gradients)
        stepper.publish()
        stepper.weights.clear_gradients()
        stepper.backend.boundary("update")
        stepper.backend.synchronize()


AT_ONCE = AtOnce()


def graph_name(index: int, count: int) -> str:
    """What the graph of micro-batch `index` of `count` is called: the first sets gradients, others add."""
    if count == 1:
        return "train/only"
    return "train/first" if index == 0 else "train/last" if index == count - 1 else "train/middle"


@dataclass(frozen=True)
class Stepper:
    """Makes updates to a model, together with all ranks of the mesh."""

    objective: Objective
    weights: Weights
    optimizer: Optimizer
    backend: Backend
    shares: Shares
    mesh: Mesh
    replicas: DataParallel
    sequence_parallel: bool
    max_grad_norm: float | None
    ending: Ending = AT_ONCE

    def begin(
        self, batch: GlobalBatch[Any], learning_rate: float, *, step: int, check: Check = lambda: None
    ) -> Underway:
        """Train on a global batch; afterwards `step` updates are done, or will be.

        Raises `TrainingError` when loss or gradients are not finite, here or when the result is asked for;
        the weights are then those of the step before.
        """
        return self.ending.update(self, batch, learning_rate, step, check)

    def update(
        self, batch: GlobalBatch[Any], learning_rate: float, *, step: int, check: Check = lambda: None
    ) -> Update:
        """`begin`, and wait for what it shows."""
        return self.begin(batch, learning_rate, step=step, check=check).result()

    def gradients(self, batch: GlobalBatch[Any], step: int = 1, check: Check = lambda: None) -> Gradients:
        """Go forward and backward over the micro-batches of update `step`, and sum over the ranks."""
        self.weights.clear_gradients()
        loss_of = self.loss_of(batch, step)
        losses = []
        last = len(batch.micro_batches) - 1
        for index, micro_batch in enumerate(batch.micro_batches):
            check()
            loss = loss_of(micro_batch)
            if index == last:
                self.replicas.begin()
            self.ending.backward(loss)
            losses.append(loss.detach())
            del loss  # or a graph that ends here would have a result that nobody asks for
            made = [losses[-1], *self.weights.sums().values(), *self.replicas.under_way()]
            self.backend.boundary(graph_name(index, last + 1), inputs_of(micro_batch), made)
        of_rows = self.replicas.finish(self.weights.sums())
        check()
        layouts = self.shares.layouts
        sum_copies(of_rows, layouts, self.mesh, self.sequence_parallel)
        norm = global_norm(of_rows, layouts, self.mesh, sharded=self.shares.group.size > 1)
        return Gradients(losses, of_rows, norm)

    def publish(self) -> None:
        """Give the model, on every rank, what the masters of all ranks hold."""
        if self.shares.group.size == 1:
            self.weights.publish()
        else:
            self.replicas.gather(self.weights.masters)

    def of_all(self, parts: list[float]) -> float:
        """Sum the shares of the loss, those of this rank first; not finite when one is not."""
        total = math.fsum(parts) if all(map(math.isfinite, parts)) else math.nan
        own = torch.tensor([total], dtype=torch.float64)
        return float(sum_over_copies(self.mesh, own).item())

    def loss_of(self, batch: GlobalBatch[Any], step: int) -> Callable[[AnyMicroBatch], torch.Tensor]:
        """What is computed of each micro-batch of an update."""

        def loss_of(part: AnyMicroBatch) -> torch.Tensor:
            with self.weights.forward_context():
                return self.objective.loss(part, batch.to_divide_by, step)

        return loss_of
