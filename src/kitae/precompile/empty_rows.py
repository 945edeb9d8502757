"""Rows without text: as many and as long as a training's, for programs that are only looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kitae.data.examples import Sample
from kitae.data.labelled_rows import LabelledRows
from kitae.data.masked_rows import MaskedRows
from kitae.data.rows import Rows
from kitae.plan.work import Work


class EmptyRows:
    """Zeros in every array of an objective's rows."""

    def __init__(self, work: Work) -> None:
        self._work, self.sequence_length = work, work.length

    def __len__(self) -> int:
        return self._work.global_rows

    def read(self, samples: Sequence[Sample]) -> Any:
        """See `Examples`."""
        work, count = self._work, len(samples)
        tokens, ones = np.zeros((count, work.length), np.int64), np.ones(count, np.int64)
        if work.objective == "causal-lm":
            return Rows(tokens, tokens, tokens, tokens + 1)
        if work.objective == "classification":
            return LabelledRows(tokens, tokens, ones, 0 * ones)
        places = np.zeros((count, work.predictions), np.int64)
        return MaskedRows(tokens, tokens, ones, places, places, 0 * ones)
