"""HDF5 shards of masked rows, as NVIDIA's and AWS's BERT examples make them: read in pieces, and checked.

A shard holds `input_ids`, `input_mask`, `segment_ids` [N, S], `masked_lm_positions`, `masked_lm_ids` [N, W]
and `next_sentence_labels` [N]; the list of a row's positions ends with its first 0. n rows of a piece,
S positions, W and P predictions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kitae.data.documents import Document, Fields, Tally, did_you_mean
from kitae.data.masked_pack import RawRows
from kitae.data.rows import IGNORED, PADDING_ID, IntArray
from kitae.errors import DataError
from kitae.recipe.sources import SourceConfig

WIDE = ("input_ids", "input_mask", "segment_ids")
NARROW = ("masked_lm_positions", "masked_lm_ids")
NEXT = "next_sentence_labels"
NAMES = (*WIDE, *NARROW, NEXT)
ROWS_AT_ONCE = 4096


def read_text_of_shard(
    path: Path, name: str, source: SourceConfig, tally: Tally, fields: Fields = ()
) -> Iterator[Document]:
    """A shard has no text: raises `DataError`."""
    raise DataError(f"{name}: an HDF5 shard holds masked rows, not text; they are for objective: masked-lm")


@dataclass(frozen=True)
class Shape:
    """What the recipe asks of the rows."""

    sequence_length: int
    max_predictions: int
    next_sentence: bool
    """Whether pairs are to be told apart; else their labels are left out."""
    vocab_size: int


@dataclass(frozen=True)
class ShardRows:
    """Good rows of a piece of a shard."""

    raw: RawRows
    numbers: IntArray
    """[n] number of each row in its shard, from 1."""
    originals: IntArray
    """[n, S] the ids before anything was hidden."""


def read_shard(path: Path, name: str, shape: Shape, tally: Tally) -> Iterator[ShardRows]:
    """The rows of a shard, some thousand at a time; bad ones stop or are counted. Raises `DataError`."""
    with _opened(path, name) as file:
        arrays = {key: _array(file, key, name) for key in NAMES}
        count = _checked_shapes(arrays, shape, name)
        for begin in range(0, count, ROWS_AT_ONCE):
            piece = {key: _piece(arrays[key], begin, key, name) for key in NAMES}
            rows = len(piece[NEXT])
            tally.documents += rows
            bad = _faults(piece, shape)
            for place, why in bad.items():
                tally.bad(f"{name} row {begin + place + 1}", why)
            good = ~np.isin(np.arange(rows), list(bad))
            numbers = np.arange(begin + 1, begin + rows + 1)[good]
            yield _rows({key: value[good] for key, value in piece.items()}, numbers, shape)
            tally.advance(path.stat().st_size * rows // count)


@contextmanager
def _opened(path: Path, name: str) -> Iterator[Any]:
    try:
        import h5py
    except ImportError as error:
        raise DataError(f"{name}: HDF5 needs the package h5py; pip install 'kitae[hdf5]'") from error
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{name}: cannot be read as HDF5: {error}; fetch the shard again") from error
    with file:
        yield file


def _array(file: Any, key: str, name: str) -> Any:
    if key not in file:
        raise DataError(f"{name}: there is no data set {key!r}; {did_you_mean(key, file.keys())}")
    found = file[key]
    if getattr(found, "dtype", None) is None or found.dtype.kind not in "iu":
        raise DataError(f"{name}: {key} holds no whole numbers; the shard is of another kind")
    return found


def _checked_shapes(arrays: dict[str, Any], shape: Shape, name: str) -> int:
    """The number of rows; raises `DataError` where arrays do not fit each other or the recipe."""
    count = int(arrays["input_ids"].shape[0]) if arrays["input_ids"].ndim == 2 else -1
    size = shape.sequence_length
    for key in WIDE:
        if arrays[key].shape != (count, size):
            raise DataError(
                f"{name}: {key} is {list(arrays[key].shape)}, but rows have data.sequence_length {size}; "
                "change it, or name the shards of that length"
            )
    for key in NARROW:
        if arrays[key].ndim != 2 or arrays[key].shape != (count, arrays[NARROW[0]].shape[1]):
            raise DataError(f"{name}: {key} is {list(arrays[key].shape)}, but there are {count} rows")
    if arrays[NEXT].size != count:
        raise DataError(f"{name}: {NEXT} is {list(arrays[NEXT].shape)}, but there are {count} rows")
    return count


def _piece(array: Any, begin: int, key: str, name: str) -> IntArray:
    try:
        found = np.asarray(array[begin : begin + ROWS_AT_ONCE], np.int64)
    except OSError as error:
        raise DataError(f"{name}: {key} cannot be read: {error}; fetch the shard again") from error
    return found.reshape(-1) if key == NEXT else found


def _counts(positions: IntArray) -> IntArray:
    """[n] predictions of each row: those before the first 0, where [CLS] stands."""
    ended = positions == 0
    found: IntArray = np.where(ended.any(axis=1), ended.argmax(axis=1), positions.shape[1])
    return found


def _faults(piece: dict[str, IntArray], shape: Shape) -> dict[int, str]:
    """What is wrong with which rows of a piece."""
    ids, mask, segments = (piece[key] for key in WIDE)
    positions, labels = (piece[key] for key in NARROW)
    lengths, counts = mask.sum(axis=1), _counts(positions)
    place = np.arange(shape.sequence_length)
    real = place < lengths[:, None]
    used = np.arange(positions.shape[1]) < counts[:, None]
    last = shape.vocab_size - 1
    second = segments * real
    checks = {
        "is empty": lengths < 1,
        "its input_mask is not ones and then zeros": (mask != real).any(axis=1),
        "its segment_ids are not zeros and then ones": (
            (second < 0) | (second > 1) | (real & (np.maximum.accumulate(second, axis=1) > second))
        ).any(axis=1),
        f"an id is not one of the tokenizer's, 0 to {last}": ((ids < 0) | (ids > last)).any(axis=1),
        f"a masked_lm_id is not one of the tokenizer's, 0 to {last}": (
            used & ((labels < 0) | (labels > last))
        ).any(axis=1),
        "a masked_lm_position is behind its end": (
            used & ((positions < 0) | (positions >= lengths[:, None]))
        ).any(axis=1),
        f"has more than the {shape.max_predictions} predictions of data.masking.max_predictions": counts
        > shape.max_predictions,
        "its next_sentence_label is neither 0 nor 1": (piece[NEXT] < 0) | (piece[NEXT] > 1),
    }
    found: dict[int, str] = {}
    for why, wrong in checks.items():
        for row in np.flatnonzero(wrong):
            found.setdefault(int(row), why)
    return dict(sorted(found.items()))


def _rows(piece: dict[str, IntArray], numbers: IntArray, shape: Shape) -> ShardRows:
    lengths = piece["input_mask"].sum(axis=1)
    real = np.arange(shape.sequence_length) < lengths[:, None]
    firsts = lengths - (piece["segment_ids"] * real).sum(axis=1)
    following = piece[NEXT] if shape.next_sentence else np.full(len(lengths), IGNORED)
    positions, labels = _lists(piece, shape.max_predictions)
    ids = np.where(real, piece["input_ids"], PADDING_ID)
    originals = ids.copy()
    row, slot = np.nonzero(labels != IGNORED)
    originals[row, positions[row, slot]] = labels[row, slot]
    raw = RawRows(ids, np.stack([lengths, firsts, following], axis=1), None, positions, labels)
    return ShardRows(raw, numbers, originals)


def _lists(piece: dict[str, IntArray], most: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Positions and labels [n, P]: cut or filled up to the recipe's width."""
    found = [piece[key][:, :most] for key in NARROW]
    missing = ((0, 0), (0, max(0, most - found[0].shape[1])))
    positions, labels = (np.pad(array, missing) for array in found)
    used = np.arange(positions.shape[1]) < _counts(piece[NARROW[0]])[:, None]
    return np.where(used, positions, 0), np.where(used, labels, IGNORED)
