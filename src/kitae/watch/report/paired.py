"""Two runs that were judged by the same held-out rows, compared row by row."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from kitae.watch.report.run_view import BROKEN, RunView

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.float64]


def difference(one: RunView, other: RunView) -> tuple[float, float | None] | None:
    """By how much the loss of `one` lies below that of `other`, in nats, and its standard error over rows.

    None where their last evaluations are not of the same rows, or cannot be read. The formula is that of
    `kitae.train.evaluate.paired_drop`.
    """
    mine, theirs = _last_rows(one), _last_rows(other)
    if mine is None or theirs is None or mine.shape != theirs.shape or (mine[1] != theirs[1]).any():
        return None
    some = mine[1] > 0
    tokens, below = mine[1][some], (theirs[0] - mine[0])[some]
    if not len(tokens):
        return None
    mean, rows = float(below.sum() / tokens.sum()), len(tokens)
    spread = sqrt(float(((below - mean * tokens) ** 2).sum())) / float(tokens.sum())
    return mean, spread * sqrt(rows / (rows - 1)) if rows > 1 else None


def _last_rows(view: RunView) -> Rows | None:
    """Summed loss and tokens of each held-out row at the end: [2, rows]."""
    import numpy as np

    steps = view.results.get("steps")
    if steps is None or view.results.get("phases"):
        return None
    try:
        rows = np.load(view.path / "evaluations" / f"step-{steps:08d}.npy", allow_pickle=False)
    except (*BROKEN, EOFError):
        return None
    return rows if rows.ndim == 2 and len(rows) >= 2 else None
