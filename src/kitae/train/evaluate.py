"""What held-out rows show: sums divided by the number of tokens or texts, so that no batch size counts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kitae.backend.base import Backend
from kitae.data.examples import Examples, Sample
from kitae.parallel.mesh import Mesh, sum_over_copies
from kitae.train.aside import explain_moved
from kitae.train.batch import AnyMicroBatch, inputs_of, micro_batch
from kitae.train.objective import Objective, mean_loss

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """What held-out rows show."""

    scores: FloatArray
    """[K, rows]: the sum of each row's losses in nats, their number, and what else the objective tells."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """Numbers beside the loss."""
    counted: str = "tokens"
    """What the loss is the mean over."""

    @property
    def row_losses(self) -> FloatArray:
        """Sum of the losses of each row, nats."""
        losses: FloatArray = self.scores[0]
        return losses

    @property
    def row_tokens(self) -> FloatArray:
        """What is predicted of each row."""
        counts: FloatArray = self.scores[1]
        return counts

    @property
    def tokens(self) -> int:
        """What is predicted of all rows."""
        return int(self.row_tokens.sum())

    @property
    def loss(self) -> float:
        """Nats for each of them; 0 when nothing is predicted."""
        return mean_loss(self.scores)

    @classmethod
    def of(cls, objective: Objective, scores: FloatArray) -> Evaluation:
        """With what the objective makes of the scores."""
        return cls(scores, objective.metrics(scores), objective.counted)


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
    objective: Objective,
    examples: Examples[Any],
    *,
    micro_batch_size: int,
    backend: Backend,
    max_rows: int | None = None,
    check: Callable[[], None] = lambda: None,
    mesh: Mesh | None = None,
) -> Evaluation:
    """Evaluate on the first `max_rows` rows (default all), which the copies of the model share.

    `check` is called before each micro-batch. Raises `TrainingError` when a loss is not finite.
    """
    mesh = mesh or Mesh()
    count = min(len(examples), max_rows or len(examples))
    found: list[tuple[range, FloatArray]] = []
    bad: list[AnyMicroBatch] = []
    underway: deque[tuple[range, AnyMicroBatch, torch.Tensor]] = deque()

    def fetch() -> None:
        rows, batch, scores = underway.popleft()
        values = scores.cpu().double().numpy()
        if backend.pretends:
            values = np.zeros_like(values)  # nothing was computed
        if not np.isfinite(values).all():
            bad[:] = bad or [batch]
        found.append((rows, values))

    for start in range(0, count, micro_batch_size * mesh.data.size):
        check()
        first = min(start + micro_batch_size * mesh.data.rank, count)
        rows = range(first, min(first + micro_batch_size, count))
        samples = [Sample(number) for number in rows]
        batch = micro_batch(examples, samples, micro_batch_size, backend.device, objective.tensors)
        scores = objective.scores(batch)
        backend.boundary("evaluate", inputs_of(batch), [scores])
        underway.append((rows, batch, scores))
        if len(underway) > int(backend.lazy):  # what comes next is on its way before this is waited for
            fetch()
    while underway:
        fetch()
    if any(mesh.control.exchange(bool(bad))):
        raise explain_moved(
            objective.model,
            objective.scores,
            tuple(bad),
            "held-out evaluation",
            backend=backend,
            mesh=mesh,
            backward=False,
        )
    return Evaluation.of(objective, _of_all(found, count, mesh))


def _of_all(found: list[tuple[range, FloatArray]], count: int, mesh: Mesh) -> FloatArray:
    """The scores of all ranks' rows, [K, rows]; padded ones left out."""
    together = np.zeros((found[0][1].shape[0], count))
    for rows, scores in found:
        together[:, rows.start : rows.stop] = scores[:, : len(rows)]
    return sum_over_copies(mesh, torch.from_numpy(together)).numpy()


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
