"""Reading packed data: any row in O(log documents), from memory-mapped files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kitae.data.examples import Sample
from kitae.data.pack import DOCUMENT_DTYPE, DOCUMENTS_FILE, FORMAT, META_FILE, PackedMeta, shard_name
from kitae.data.rows import PADDING_ID, Rows, build_rows
from kitae.errors import DataError


@dataclass(frozen=True)
class Span:
    """The part of a document that lies in a row."""

    document: int
    """Number of the document in the split, from 0."""
    offset: int
    """Token of the document that the part begins with; above 0 when an earlier row holds its beginning."""
    start: int
    """Position in the row."""
    end: int
    """Position behind the last one."""


class PackedData:
    """A split of packed data; `len` is its number of rows."""

    def __init__(self, folder: Path, meta: PackedMeta) -> None:
        self.folder = folder
        self.meta = meta
        self.sequence_length = meta.sequence_length
        self._starts = map_numbers(folder / DOCUMENTS_FILE, DOCUMENT_DTYPE, meta.documents)
        dtype = np.dtype(meta.dtype).newbyteorder("<")
        sizes = [min(meta.shard_tokens, meta.tokens - n * meta.shard_tokens) for n in range(meta.num_shards)]
        self._shards = [map_numbers(folder / shard_name(n), dtype, size) for n, size in enumerate(sizes)]

    @classmethod
    def open(cls, folder: Path) -> PackedData:
        """Open a folder that `PackWriter` closed; raises `DataError` for an incomplete or another version."""
        return cls(folder, read_meta(folder / META_FILE, FORMAT, PackedMeta, "not packed data"))

    def __len__(self) -> int:
        return self.meta.rows

    @property
    def num_tokens(self) -> int:
        """Tokens in rows, padding not counted."""
        return self.meta.tokens - self.meta.remainder

    def tokens(self, start: int, end: int) -> NDArray[np.int64]:
        """Tokens `start` to `end` of the stream, cut at its end; int64."""
        end, size = min(end, self.meta.tokens), self.meta.shard_tokens
        parts = [
            self._shards[n][max(start - n * size, 0) : end - n * size]
            for n in range(start // size, -(-end // size))
        ]
        return np.concatenate(parts).astype(np.int64)

    def read(self, samples: Sequence[Sample]) -> Rows:
        """The rows of these samples, the same each time they are read; raises `IndexError`."""
        return self.rows([sample.number for sample in samples])

    def rows(self, indices: Sequence[int]) -> Rows:
        """The rows with these numbers, in this order; raises `IndexError`."""
        shape = (len(indices), self.sequence_length)
        ids, begins = np.full(shape, PADDING_ID, np.int64), np.zeros(shape, np.bool_)
        lengths = np.zeros(len(indices), np.int64)
        for place, row in enumerate(indices):
            start, end = self._bounds(row)
            lengths[place] = end - start
            ids[place, : end - start] = self.tokens(start, end)
            if self.meta.document_mask:
                begins[place, self._starts_within(start, end) - start] = True
        return build_rows(ids, lengths, begins)

    def spans(self, row: int) -> list[Span]:
        """The documents of a row, with or without a mask between them; raises `IndexError`."""
        start, end = self._bounds(row)
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        begins = [int(self._starts[first]), *(int(begin) for begin in self._starts_within(start + 1, end))]
        ends = [*begins[1:], end]
        return [
            Span(first + n, max(start - begin, 0), max(begin, start) - start, stop - start)
            for n, (begin, stop) in enumerate(zip(begins, ends, strict=True))
        ]

    def _bounds(self, row: int) -> tuple[int, int]:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row}: there are rows 0 to {len(self) - 1}")
        start = row * self.sequence_length
        return start, min(start + self.sequence_length, self.meta.tokens)

    def _starts_within(self, start: int, end: int) -> NDArray[np.int64]:
        low, high = np.searchsorted(self._starts, [start, end], side="left")
        return np.asarray(self._starts[low:high], np.int64)


Meta = TypeVar("Meta")
WAY_OUT = "delete the folder and prepare again"


def read_meta(path: Path, format: object, make: Callable[..., Meta], otherwise: str) -> Meta:
    """What a split's own file says of it; `otherwise` is what a folder without it is. Raises `DataError`."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path.parent}: {otherwise} ({path.name}: {error}); {WAY_OUT}") from error
    if content.get("format") != format:
        raise DataError(f"{path}: format {content.get('format')!r}, this kitae reads {format}; {WAY_OUT}")
    try:
        return make(**content)
    except TypeError as error:
        raise DataError(f"{path}: {error}; {WAY_OUT}") from error


def map_numbers(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Memory-map `count` numbers, and not more; raises `DataError`."""
    size = path.stat().st_size if path.is_file() else -1
    if size != count * dtype.itemsize:
        raise DataError(f"{path}: {size} bytes where {count * dtype.itemsize} belong; {WAY_OUT}")
    if count == 0:
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r", shape=(count,))
