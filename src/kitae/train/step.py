"""One optimizer update: forward and backward over the micro-batches, clipping, optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from kitae.backend.base import Backend
from kitae.model.decoder import Decoder
from kitae.train.batch import GlobalBatch, MicroBatch
from kitae.train.finite import explain
from kitae.train.loss import linear_cross_entropy
from kitae.train.optimizer import Optimizer, clip, global_norm
from kitae.train.precision import Weights


@dataclass(frozen=True)
class Update:
    """What one update shows."""

    loss: float
    """Mean over the target tokens of the global batch, nats."""
    grad_norm: float
    """Global norm before clipping."""


@dataclass(frozen=True)
class Stepper:
    """Makes updates to a model."""

    model: Decoder
    weights: Weights
    optimizer: Optimizer
    backend: Backend
    max_grad_norm: float | None
    chunk_tokens: int

    def update(
        self, batch: GlobalBatch, learning_rate: float, *, step: int, check: Callable[[], None] = lambda: None
    ) -> Update:
        """Train on a global batch; afterwards `step` updates are done.

        `check` is called before each micro-batch and may raise: the weights are then those of the step
        before. Raises `TrainingError` when loss or gradients are not finite, before anything is changed.
        """
        losses, norm = self.gradients(batch, check)
        *parts, norm_value = torch.stack((*losses, norm)).tolist()  # the one wait for the device
        if not math.isfinite(sum(parts) + norm_value):
            self.weights.clear_gradients()
            raise explain(self.model, self._loss_of(batch), batch.micro_batches, f"step {step}")
        sums = self.weights.sums()
        clip(list(sums.values()), norm_value, self.max_grad_norm)
        self.optimizer.step(learning_rate, sums)
        del sums
        self.weights.publish()
        self.weights.clear_gradients()
        self.backend.boundary()
        self.backend.synchronize()
        return Update(math.fsum(parts), norm_value)

    def gradients(
        self, batch: GlobalBatch, check: Callable[[], None] = lambda: None
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Fill the sums of the gradients; the micro-batches' shares of the loss, and the global norm."""
        self.weights.clear_gradients()
        loss_of = self._loss_of(batch)
        losses = []
        for micro_batch in batch.micro_batches:
            check()
            loss = loss_of(micro_batch)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
            self.backend.boundary()
        check()
        return losses, global_norm(self.weights.sums().values())

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
                )

        return loss_of
