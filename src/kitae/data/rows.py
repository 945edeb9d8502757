"""Rows that a model trains on. B rows, S positions in a row.

Padding and ignored targets are known by length and mask, never by token id, so a tokenizer needs no pad
token, and a pad token that is also the end token does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IGNORED = -100
"""Target where there is nothing to predict."""
PADDING_ID = 0
"""Input id in padding; any row of the embedding would do."""

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Four int64 arrays [B, S]."""

    input_ids: IntArray
    targets: IntArray
    """The token that each position must predict; -100 where there is none."""
    position_ids: IntArray
    segment_ids: IntArray
    """1, 2, .. for the documents of a row that do not see each other; 0 for padding."""

    @property
    def real_tokens(self) -> int:
        """Positions that hold text."""
        return int((self.segment_ids != 0).sum())

    @property
    def counts(self) -> tuple[int, ...]:
        """How many tokens are predicted."""
        return (int((self.targets != IGNORED).sum()),)

    def part(self, rows: slice) -> Rows:
        """Some of the rows."""
        return Rows(self.input_ids[rows], self.targets[rows], self.position_ids[rows], self.segment_ids[rows])

    def pad(self, count: int) -> Rows:
        """The rows and fully padded ones behind them, `count` in all: shapes stay static."""
        return Rows(
            padded(self.input_ids, count, PADDING_ID),
            padded(self.targets, count, IGNORED),
            padded(self.position_ids, count, 0),
            padded(self.segment_ids, count, 0),
        )


def padded(array: IntArray, count: int, value: int) -> IntArray:
    """An array of `count` rows, those behind the given ones filled with `value`."""
    missing = count - len(array)
    assert missing >= 0, "more rows than the padded count"
    if missing == 0:
        return array
    return np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1), constant_values=value)


def labels_by_length(ids: IntArray, lengths: IntArray) -> IntArray:
    """Unshifted labels, as Hugging Face names them: ids [B, S] with -100 from `lengths` [B] on."""
    real = np.arange(ids.shape[1]) < lengths[:, None]
    return np.where(real, ids, IGNORED)


def build_rows(ids: IntArray, lengths: IntArray, begins: NDArray[np.bool_]) -> Rows:
    """Rows from ids [B, S], true lengths [B] and the positions [B, S] at which documents begin.

    Positions restart and targets stop at each beginning; with no beginnings a row is one run of text.
    """
    begins = begins.copy()
    begins[:, 0] = True
    place = np.arange(ids.shape[1])
    real = place < lengths[:, None]
    segments = np.cumsum(begins, axis=1, dtype=np.int64) * real
    positions = (place - np.maximum.accumulate(np.where(begins, place, 0), axis=1)) * real
    targets = np.full_like(ids, IGNORED)
    goes_on = segments[:, 1:] == segments[:, :-1]
    targets[:, :-1] = np.where(goes_on, labels_by_length(ids, lengths)[:, 1:], IGNORED)
    return Rows(ids, targets, positions, segments)
