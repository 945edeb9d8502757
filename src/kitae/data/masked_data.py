"""Reading rows for masked-language training, from memory-mapped files; masks are drawn on the way.

B rows, S positions, P predictions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kitae.data.examples import Sample
from kitae.data.masked_pack import FORMAT, META_FILE, MaskedMeta
from kitae.data.masked_rows import MaskedRows
from kitae.data.packed import WAY_OUT, map_numbers
from kitae.data.rows import IntArray
from kitae.errors import DataError

CHUNK_TOKENS = 1 << 15
"""Rows are made in pieces whose intermediate arrays stay in a core's cache."""


class MaskedData:
    """A split of rows; `len` is their number."""

    def __init__(self, folder: Path, meta: MaskedMeta) -> None:
        self.folder = folder
        self.meta = meta
        self.sequence_length = meta.sequence_length
        self._files = {
            name: map_numbers(folder / name, dtype, meta.rows * columns).reshape(meta.rows, columns)
            for name, (dtype, columns) in meta.files().items()
        }

    @classmethod
    def open(cls, folder: Path) -> MaskedData:
        """Open what `MaskedWriter` closed; raises `DataError` for an incomplete folder or another version."""
        path = folder / META_FILE
        try:
            content = json.loads(path.read_text("utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']!r}, this kitae reads {FORMAT}")
            return cls(folder, MaskedMeta.from_json(content))
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path}: not rows for masked-lm ({error}); {WAY_OUT}") from error

    def __len__(self) -> int:
        return self.meta.rows

    def read(self, samples: Sequence[Sample]) -> MaskedRows:
        """The rows of these samples, in this order; raises `IndexError`."""
        table = np.array(samples, np.int64).reshape(len(samples), 2)
        numbers, epochs = table[:, 0], table[:, 1]
        for number in numbers[(numbers < 0) | (numbers >= len(self))]:
            raise IndexError(f"row {number}: there are rows 0 to {len(self) - 1}")
        rows = self._empty(len(samples))
        step = max(1, CHUNK_TOKENS // self.sequence_length)
        for start in range(0, len(samples), step):
            piece = slice(start, start + step)
            self._fill(rows.part(piece), numbers[piece], epochs[piece])
        return rows

    def _empty(self, count: int) -> MaskedRows:
        wide, narrow = (count, self.sequence_length), (count, self.meta.max_predictions)
        shapes: tuple[Any, ...] = (wide, wide, count, narrow, narrow, count)
        return MaskedRows(*(np.empty(shape, np.int64) for shape in shapes))

    def _fill(self, rows: MaskedRows, numbers: IntArray, epochs: IntArray) -> None:
        """Write the rows of these numbers [B] into `rows`, whose arrays are parts of larger ones."""
        rows.input_ids[:] = self._files["ids.bin"][numbers]
        lengths, firsts, rows.next_sentence[:] = self._files["rows.bin"][numbers].T
        rows.lengths[:] = lengths
        place = np.arange(self.sequence_length, dtype=np.int32)
        rows.token_type_ids[:] = (place >= firsts[:, None]) & (place < lengths[:, None])
        rows.positions[:], rows.labels[:] = self._masks(rows.input_ids, numbers, epochs)

    def _masks(self, ids: IntArray, numbers: IntArray, epochs: IntArray) -> tuple[IntArray, IntArray]:
        hiding = self.meta.hiding
        if hiding is None:
            return self._files["positions.bin"][numbers], self._files["labels.bin"][numbers]
        return hiding.hide(ids, self.word_starts(numbers), hiding.keys(numbers, epochs))

    def word_starts(self, numbers: Sequence[int] | IntArray) -> NDArray[np.bool_]:
        """[B, S] where words begin, and at special tokens; only for rows whose masks are drawn."""
        packed = self._files["starts.bin"][numbers]
        return np.unpackbits(packed, axis=1, count=self.sequence_length).view(np.bool_)

    def ordinary(self, numbers: Sequence[int] | IntArray) -> NDArray[np.bool_]:
        """[B, S] what may be hidden: neither padding nor special; only for rows whose masks are drawn."""
        assert self.meta.hiding is not None, "the rows came with their masks"
        ids, lengths = self._files["ids.bin"][numbers], self._files["rows.bin"][numbers, 0]
        real = np.arange(self.sequence_length) < lengths[:, None]
        found: NDArray[np.bool_] = real & ~np.isin(ids, self.meta.hiding.special_ids)
        return found

    def originals(self, number: int) -> IntArray:
        """[S] the ids of a row before anything was hidden."""
        ids: IntArray = self._files["ids.bin"][number].astype(np.int64)
        if self.meta.hiding is None:
            positions, labels = self._files["positions.bin"][number], self._files["labels.bin"][number]
            ids[positions[labels >= 0]] = labels[labels >= 0]
        return ids
