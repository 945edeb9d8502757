"""One optimizer update: forward and backward over the micro-batches, clipping, optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from kitae.backend.base import Backend
from kitae.model.decoder import Decoder
from kitae.parallel.data_parallel import DataParallel
from kitae.parallel.gradients import global_norm, sum_copies
from kitae.parallel.mesh import Mesh, sum_over_copies
from kitae.parallel.shares import Shares
from kitae.train.batch import GlobalBatch, MicroBatch
from kitae.train.finite import explain
from kitae.train.loss import linear_cross_entropy
from kitae.train.optimizer import Optimizer, clip
from kitae.train.precision import Weights


@dataclass(frozen=True)
class Update:
    """What one update shows."""

    loss: float
    """Mean over the target tokens of the global batch, nats."""
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


@dataclass(frozen=True)
class Stepper:
    """Makes updates to a model, together with all ranks of the mesh."""

    model: Decoder
    weights: Weights
    optimizer: Optimizer
    backend: Backend
    shares: Shares
    mesh: Mesh
    replicas: DataParallel
    sequence_parallel: bool
    max_grad_norm: float | None
    chunk_tokens: int

    def update(
        self, batch: GlobalBatch, learning_rate: float, *, step: int, check: Callable[[], None] = lambda: None
    ) -> Update:
        """Train on a global batch; afterwards `step` updates are done.

        `check` is called before each micro-batch and may raise: the weights are then those of the step
        before. Raises `TrainingError` when loss or gradients are not finite, before anything is changed.
        """
        gradients = self.gradients(batch, check)
        *parts, norm = torch.stack(
            (*gradients.losses, gradients.norm)
        ).tolist()  # the one wait for the device
        loss = self._of_all(parts)
        if not math.isfinite(loss + norm):
            del gradients  # what follows needs the memory for a backward pass of its own
            self.weights.clear_gradients()
            raise explain(
                self.model, self._loss_of(batch), batch.micro_batches, f"step {step}", mesh=self.mesh
            )
        self._apply(gradients.of_rows, norm, learning_rate)
        return Update(loss, norm)

    def gradients(self, batch: GlobalBatch, check: Callable[[], None] = lambda: None) -> Gradients:
        """Go forward and backward over the micro-batches, and sum over the ranks."""
        self.weights.clear_gradients()
        loss_of = self._loss_of(batch)
        losses = []
        last = len(batch.micro_batches) - 1
        for index, micro_batch in enumerate(batch.micro_batches):
            check()
            loss = loss_of(micro_batch)
            if index == last:
                self.replicas.begin()
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
            self.backend.boundary()
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
        self.backend.boundary()
        self.backend.synchronize()

    def _of_all(self, parts: list[float]) -> float:
        """Sum the shares of the loss, those of this rank first; not finite when one is not."""
        total = math.fsum(parts) if all(map(math.isfinite, parts)) else math.nan
        own = torch.tensor([total], dtype=torch.float64)
        return float(sum_over_copies(self.mesh, own).item())

    def _loss_of(self, batch: GlobalBatch) -> Callable[[MicroBatch], torch.Tensor]:
        scale = 1 / max(1, batch.target_tokens)

        def loss_of(part: MicroBatch) -> torch.Tensor:
            with self.weights.forward_context():
                hidden = self.model(part.input_ids, part.position_ids, part.segment_ids)
                return linear_cross_entropy(
                    hidden.flatten(0, 1),
                    self.model.head_weight,
                    part.targets.flatten(),
                    scale=scale,
                    chunk_tokens=self.chunk_tokens,
                    vocabulary=self.model.vocabulary,
                )

        return loss_of
