"""Reading labelled texts, each a row of its own, from memory-mapped files. B rows, S positions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kitae.data.examples import Sample
from kitae.data.labelled_pack import (
    FORMAT,
    IDS_FILE,
    META_FILE,
    ROWS_DTYPE,
    ROWS_FILE,
    STARTS_DTYPE,
    STARTS_FILE,
    LabelledMeta,
)
from kitae.data.labelled_rows import LabelledRows
from kitae.data.packed import map_numbers, read_meta
from kitae.data.rows import PADDING_ID


class LabelledData:
    """A split of labelled texts; `len` is their number."""

    def __init__(self, folder: Path, meta: LabelledMeta) -> None:
        self.folder = folder
        self.meta = meta
        self.sequence_length = meta.sequence_length
        self.classes = tuple(meta.classes)
        """Names of the classes by number."""
        self._starts = map_numbers(folder / STARTS_FILE, STARTS_DTYPE, meta.rows + 1)
        self._rows = map_numbers(folder / ROWS_FILE, ROWS_DTYPE, meta.rows * 2).reshape(-1, 2)
        self._ids = map_numbers(folder / IDS_FILE, np.dtype(meta.dtype).newbyteorder("<"), meta.tokens)

    @classmethod
    def open(cls, folder: Path) -> LabelledData:
        """Open a folder that `LabelledWriter` closed; raises `DataError`."""
        return cls(folder, read_meta(folder / META_FILE, FORMAT, LabelledMeta, "no labelled texts"))

    def __len__(self) -> int:
        return self.meta.rows

    def read(self, samples: Sequence[Sample]) -> LabelledRows:
        """The rows of these samples, in this order; they are the same in every epoch. Raises `IndexError`."""
        numbers = np.array([self._checked(sample.number) for sample in samples], np.int64)
        lengths = np.asarray(self._starts[numbers + 1] - self._starts[numbers], np.int64)
        firsts, labels = np.asarray(self._rows[numbers], np.int64).T
        place = np.arange(self.sequence_length)
        ids = np.full((len(numbers), self.sequence_length), PADDING_ID, np.int64)
        for row, number in zip(ids, numbers, strict=True):
            text = self._ids[self._starts[number] : self._starts[number + 1]]
            row[: len(text)] = text
        second = (place >= firsts[:, None]) & (place < lengths[:, None])
        return LabelledRows(ids, second.astype(np.int64), lengths, labels.copy())

    def _checked(self, number: int) -> int:
        if not 0 <= number < len(self):
            raise IndexError(f"row {number}: there are rows 0 to {len(self) - 1}")
        return number
