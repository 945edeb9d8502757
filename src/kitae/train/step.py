"""One optimizer update: forward and backward over the micro-batches, clipping, optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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

    def update(
        self,
        batch: GlobalBatch[Any],
        learning_rate: float,
        *,
        step: int,
        check: Callable[[], None] = lambda: None,
    ) -> Update:
        """Train on a global batch; afterwards `step` updates are done.

        `check` is called before each micro-batch and may raise: the weights are then those of the step
        before. Raises `TrainingError` when loss or gradients are not finite, before anything is changed.
        """
        gradients = self.gradients(batch, step, check)
        *parts, norm = torch.stack(
            (*gradients.losses, gradients.norm)
        ).tolist()  # the one wait for the device
        loss = self._of_all(parts)
        if not math.isfinite(loss + norm):
            del gradients  # what follows needs the memory for a backward pass of its own
            self.weights.clear_gradients()
            raise explain(
                self.objective.model,
                self._loss_of(batch, step),
                batch.micro_batches,
                f"step {step}",
                mesh=self.mesh,
            )
        self._apply(gradients.of_rows, norm, learning_rate)
        return Update(loss, norm)

    def gradients(
        self, batch: GlobalBatch[Any], step: int = 1, check: Callable[[], None] = lambda: None
    ) -> Gradients:
        """Go forward and backward over the micro-batches of update `step`, and sum over the ranks."""
        self.weights.clear_gradients()
        loss_of = self._loss_of(batch, step)
        losses = []
        last = len(batch.micro_batches) - 1
        for index, micro_batch in enumerate(batch.micro_batches):
            check()
            loss = loss_of(micro_batch)
            if index == last:
                self.replicas.begin()
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
            self.backend.boundary(graph_name(index, last + 1), inputs_of(micro_batch), [losses[-1]])
        of_rows = self.replicas.finish(self.weights.sums())
        check()
        layouts = self.shares.layouts
        sum_copies(of_rows, layouts, self.mesh, self.sequence_parallel)
        norm = global_norm(of_rows, layouts, self.mesh, sharded=self.shares.group.size > 1)
        return Gradients(losses, of_rows, norm)

    def publish(self) -> None:
        """Give the model, on every rank, what the masters of all ranks hold."""
        self.weights.publish()
        self.replicas.gather()

    def _apply(self, gradients: Mapping[str, torch.Tensor], norm: float, learning_rate: float) -> None:
        clip(list(gradients.values()), norm, self.max_grad_norm)
        self.optimizer.step(learning_rate, gradients)
        self.publish()
        self.weights.clear_gradients()
        self.backend.boundary("update")
        self.backend.synchronize()

    def _of_all(self, parts: list[float]) -> float:
        """Sum the shares of the loss, those of this rank first; not finite when one is not."""
        total = math.fsum(parts) if all(map(math.isfinite, parts)) else math.nan
        own = torch.tensor([total], dtype=torch.float64)
        return float(sum_over_copies(self.mesh, own).item())

    def _loss_of(self, batch: GlobalBatch[Any], step: int) -> Callable[[AnyMicroBatch], torch.Tensor]:
        def loss_of(part: AnyMicroBatch) -> torch.Tensor:
            with self.weights.forward_context():
                return self.objective.loss(part, batch.counts, step)

        return loss_of
