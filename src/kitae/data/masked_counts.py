"""How much of rows is hidden, counted on the rows themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from kitae.data.examples import Sample
from kitae.data.masked_data import MaskedData
from kitae.data.rows import IGNORED

COUNTED_ROWS = 1 << 16
READ_AT_ONCE = 4096


def masked_counts(data: MaskedData) -> dict[str, Any]:
    """Shares of the first rows, as they are read in the first epoch: of their tokens, and of their words."""
    counted = min(len(data), COUNTED_ROWS)
    predicted = tokens = words = hidden_words = 0
    for begin in range(0, counted, READ_AT_ONCE):
        numbers = np.arange(begin, min(begin + READ_AT_ONCE, counted))
        rows = data.read([Sample(int(number)) for number in numbers])
        row, slot = np.nonzero(rows.labels != IGNORED)
        text, starts = data.ordinary(numbers), data.word_starts(numbers)
        predicted += len(row)
        tokens += int(text.sum())
        words += int((starts & text).sum())
        hidden_words += int(starts[row, rows.positions[row, slot]].sum())
    return {
        "rows_counted": counted,
        "predictions": predicted,
        "share_of_tokens": round(predicted / max(1, tokens), 5),
        "share_of_words": round(hidden_words / max(1, words), 5),
    }
