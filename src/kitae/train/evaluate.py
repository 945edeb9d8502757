"""Held-out loss: a sum over tokens divided by their number, so that no batch size changes it.

B rows, S positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kitae.backend.base import Backend
from kitae.data.packed import PackedData
from kitae.model.decoder import Decoder
from kitae.parallel.mesh import Mesh, sum_over_copies
from kitae.train.batch import MicroBatch, micro_batch
from kitae.train.finite import explain
from kitae.train.loss import IGNORE, token_losses

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """Loss on held-out rows."""

    row_losses: FloatArray
    """Sum of the token losses of each row, nats."""
    row_tokens: FloatArray
    """Predicted tokens of each row."""

    @property
    def tokens(self) -> int:
        """Predicted tokens of all rows."""
        return int(self.row_tokens.sum())

    @property
    def loss(self) -> float:
        """Nats per token; 0 when nothing is predicted."""
        return float(self.row_losses.sum() / max(1, self.tokens))

    @property
    def perplexity(self) -> float:
        """The exponential of the loss, which is cut at 700 so that the result is a number."""
        return math.exp(min(self.loss, 700.0))


@dataclass(frozen=True)
class PairedDrop:
    """How much lower the loss of the same rows is after than before."""

    rows: int
    rows_improved: int
    mean_drop: float
    """Nats per token; the difference of the two losses."""
    standard_error: float | None
    """Of the mean drop over the rows, each weighted by its tokens; null for fewer than two rows."""


@torch.no_grad()
def evaluate(
    model: Decoder,
    packed: PackedData,
    *,
    micro_batch_size: int,
    backend: Backend,
    max_rows: int | None = None,
    chunk_tokens: int = 512,
    check: Callable[[], None] = lambda: None,
    mesh: Mesh | None = None,
) -> Evaluation:
    """Evaluate on the first `max_rows` rows (default all), which the copies of the model share.

    `check` is called before each micro-batch. Raises `TrainingError` when a loss is not finite.
    """
    mesh = mesh or Mesh()
    count = min(len(packed), max_rows or len(packed))
    found = np.zeros((2, count))
    bad: list[MicroBatch] = []

    def row_losses(batch: MicroBatch) -> torch.Tensor:
        return _row_losses(model, batch, chunk_tokens)

    for start in range(0, count, micro_batch_size * mesh.data.size):
        check()
        first = min(start + micro_batch_size * mesh.data.rank, count)
        samples = range(first, min(first + micro_batch_size, count))
        batch = micro_batch(packed, samples, micro_batch_size, backend.device)
        of_rows = row_losses(batch).cpu().numpy()
        if not np.isfinite(of_rows).all():
            bad = bad or [batch]
        found[:, samples.start : samples.stop] = of_rows[:, : len(samples)]
        backend.boundary()
    if any(mesh.control.exchange(bool(bad))):
        raise explain(model, row_losses, bad, "held-out evaluation", backward=False, mesh=mesh)
    return Evaluation(*sum_over_copies(mesh, torch.from_numpy(found)).numpy())


def paired_drop(before: Evaluation, after: Evaluation) -> PairedDrop:
    """Compare two evaluations of the same rows; rows without a predicted token are left out."""
    assert np.array_equal(before.row_tokens, after.row_tokens), "evaluations of different rows"
    some = before.row_tokens > 0
    tokens = before.row_tokens[some]
    drops = (before.row_losses - after.row_losses)[some] / tokens
    rows = len(drops)
    mean = before.loss - after.loss
    spread = float(np.sqrt((tokens**2 * (drops - mean) ** 2).sum()) / max(1, tokens.sum()))
    error = spread * math.sqrt(rows / (rows - 1)) if rows > 1 else None
    return PairedDrop(rows, int((drops > 0).sum()), mean, error)


def _row_losses(model: Decoder, batch: MicroBatch, chunk_tokens: int) -> torch.Tensor:
    """Loss sums and predicted tokens of the rows, [2, B]."""
    hidden = model(batch.input_ids, batch.position_ids, batch.segment_ids)
    losses = token_losses(
        hidden.flatten(0, 1),
        model.head_weight,
        batch.targets.flatten(),
        chunk_tokens=chunk_tokens,
        vocabulary=model.vocabulary,
    )
    sums = losses.view_as(batch.targets).double().sum(1)
    tokens = (batch.targets != IGNORE).sum(1).double()
    return torch.stack((sums, tokens))
