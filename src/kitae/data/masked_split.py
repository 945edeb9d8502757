"""The rows of a split are made of its sentences and written. n rows, S positions."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from kitae.data.masked_counts import masked_counts
from kitae.data.masked_data import MaskedData
from kitae.data.masked_pack import FORMAT, MaskedMeta, MaskedWriter, RawRows
from kitae.data.masked_settings import hiding_of, masking_of
from kitae.data.pack import token_dtype
from kitae.data.pairs import Pairs, Piece, Runs
from kitae.data.preparation import Job
from kitae.data.rows import PADDING_ID
from kitae.data.sentence_store import SentenceStore
from kitae.errors import DataError
from kitae.recipe.masking import MaskingConfig

WRITTEN_AT_ONCE = 2048


def rows_of(masking: MaskingConfig) -> type[Runs]:
    """What makes rows of sentences: pairs, or runs of one text."""
    return Pairs if masking.next_sentence else Runs


class MaskedSplit:
    """Makes the rows of one split."""

    def __init__(self, job: Job, name: str, store: SentenceStore, framing: tuple[int, ...]) -> None:
        """`framing`: the ids that begin a row and end its texts. Raises `DataError` where pairs cannot be."""
        masking, size = masking_of(job.config), job.config.sequence_length
        if masking.next_sentence:
            check_pairs(name, store)
        self._pairs = masking.next_sentence
        self._size = size
        self._store = store
        self._framing = framing
        self._rows = rows_of(masking)(store, size, masking.short_sequence_probability, job.seed, name)
        hiding = hiding_of(job, dynamic=masking.dynamic and name == "train")
        dtype = token_dtype(job.tokenizer.vocab_size)
        self._meta = MaskedMeta(FORMAT, 0, size, dtype, hiding.max_predictions, hiding)
        self._writer: MaskedWriter | None = None

    def write(self, folder: Path) -> dict[str, Any]:
        """Write the rows into a new folder; what the card says of them."""
        self._writer = writer = MaskedWriter(folder, self._meta)
        pieces = self._rows.pieces()
        while some := list(islice(pieces, WRITTEN_AT_ONCE)):
            writer.append(framed(self._store, some, self._size, self._framing))
        writer.close()
        counts = self._rows.counts
        room = writer.rows * (self._size - self._rows.framing)
        return {
            "tokens": counts.own + counts.cut_off,
            "tokens_cut_off": counts.cut_off,
            "tokens_borrowed": counts.borrowed,
            "rows": writer.rows,
            "pairs": writer.rows if self._pairs else 0,
            "random_pairs": counts.random_pairs,
            "padding": room - counts.own - counts.borrowed,
            "masked": masked_counts(MaskedData.open(folder)),
        }

    @property
    def written_bytes(self) -> int:
        """Bytes of the rows so far."""
        return 0 if self._writer is None else self._writer.written_bytes

    def abandon(self) -> None:
        """Close the files as they are."""
        if self._writer is not None:
            self._writer.abandon()


def check_pairs(name: str, store: SentenceStore) -> None:
    """Raise `DataError` where there can be no pairs of both kinds."""
    lacks = "one document" if len(store) < 2 else "no document of several sentences"
    if len(store) < 2 or not store.several():
        raise DataError(
            f"data.masking.next_sentence: the {name} text has {lacks}: there are no pairs of both kinds; "
            "set it to false, or say what a document is (data.train.*.document)"
        )


def framed(store: SentenceStore, pieces: list[Piece], size: int, framing: tuple[int, ...]) -> RawRows:
    """Rows [n, S] of pieces with the special tokens around them."""
    first, first_end, second, second_end, following = np.array(pieces, np.int64).T[:, :, None]
    cls_id, sep_id, *_ = framing
    place = np.arange(size)
    end, paired = first_end - first + 1, second_end > second
    last = np.where(paired, end + 1 + second_end - second, end)
    special = (place == 0) | (place == end) | (place == last)
    text = (place < last) & ~special
    source = np.where(text, np.where(place < end, first + place - 1, second + place - end - 1), 0)
    ids = np.where(text, store.ids[source], PADDING_ID)
    ids[special] = sep_id
    ids[:, 0] = cls_id
    # What is behind a special token begins a word, also where a word was cut.
    starts = (text & store.starts[source]) | special
    starts[:, 1:] |= special[:, :-1] & text[:, 1:]
    shape = np.concatenate([last + 1, np.where(paired, end + 1, last + 1), following], axis=1)
    return RawRows(ids, shape, starts)
