"""Texts, or pairs of them, become the rows of a classifier: [CLS] A [SEP], or [CLS] A [SEP] B [SEP].

What is too long is cut at its end: of a pair the longer text, and of two that are equal the second.
N texts, T tokens of all of them.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kitae.data.normalise import clean
from kitae.data.tokenizer import Ids
from kitae.data.word_tokenizer import WordTokenizer

COUNTS = (
    "bytes",
    "chars",
    "documents_changed_by_normalisation",
    "documents_cut",
    "tokens_cut",
    "unknown_tokens",
    "special_tokens_in_text",
)
"""What is counted of each text."""

Content = tuple[str, str | None] | None
"""A text and the second one; None for a text that is left out."""


@dataclass(frozen=True)
class Encoded:
    """Encoded texts, one after the other. Those that are left out or hold nothing have no tokens."""

    ids: Ids
    """[T], special tokens included."""
    lengths: NDArray[np.int64]
    """[N] tokens of each."""
    firsts: NDArray[np.int64]
    """[N] how many of them are of the first text and what frames it."""
    counts: NDArray[np.int64]
    """[N, len(COUNTS)]."""
    digests: list[bytes]
    """[N] hash of each text or pair: equal ones, equal hashes."""

    def column(self, name: str) -> NDArray[np.int64]:
        """[N] one of `COUNTS`."""
        return np.asarray(self.counts[:, COUNTS.index(name)])

    def select(self, chosen: NDArray[np.bool_]) -> Encoded:
        """The texts for which `chosen` [N] is true."""
        return Encoded(
            self.ids[np.repeat(chosen, self.lengths)],
            self.lengths[chosen],
            self.firsts[chosen],
            self.counts[chosen],
            list(itertools.compress(self.digests, chosen)),
        )


@dataclass(frozen=True)
class LabelledSpec:
    """All that the tokens of a text depend on."""

    tokenizer: WordTokenizer
    normalisation: str
    sequence_length: int

    def open(self) -> LabelledEncoder:
        """What encodes, in the process that calls this."""
        return LabelledEncoder(self)


class LabelledEncoder:
    """Turns texts into tokens in the process that it lives in."""

    def __init__(self, spec: LabelledSpec) -> None:
        self._spec = spec
        special = spec.tokenizer.special
        self._cls, self._sep = special.need("cls", "sep")
        self._unknown = special.unk
        self._inside = np.array(sorted(special.all - {special.unk}), np.uint32)

    def __call__(self, contents: Sequence[Content]) -> Encoded:
        """Encode; texts that are left out, blank, or that the tokenizer finds nothing in, come out empty."""
        texts = [("", None) if content is None else content for content in contents]
        firsts = [clean(first, self._spec.normalisation) for first, _ in texts]
        seconds = [clean(second or "", self._spec.normalisation) for _, second in texts]
        ids = self._spec.tokenizer.encode_batch([text if text.strip() else "" for text, _ in firsts])
        pairs = [second is not None for _, second in texts]
        others = self._spec.tokenizer.encode_batch([text for text, _ in seconds]) if any(pairs) else ids
        rows = [
            self._row(one, other if is_pair else None)
            for one, other, is_pair in zip(ids, others, pairs, strict=True)
        ]
        return Encoded(
            ids=np.concatenate([row for row, _, _ in rows]) if rows else np.zeros(0, np.uint32),
            lengths=np.array([len(row) for row, _, _ in rows], np.int64),
            firsts=np.array([first for _, first, _ in rows], np.int64),
            counts=np.array(
                [
                    _of_text(first, second) + own
                    for first, second, (_, _, own) in zip(firsts, seconds, rows, strict=True)
                ],
                np.int64,
            ).reshape(len(rows), len(COUNTS)),
            digests=[
                _digest(first, second if is_pair else None)
                for (first, _), (second, _), is_pair in zip(firsts, seconds, pairs, strict=True)
            ],
        )

    def _row(self, first: Ids, second: Ids | None) -> tuple[Ids, int, list[int]]:
        """The framed tokens, how many belong to the first text, and what is counted of tokens."""
        if not len(first):
            return first, 0, [0, 0, 0, 0]
        room = self._spec.sequence_length - (2 if second is None else 3)
        ends = np.array([self._sep], np.uint32)
        whole = [first] if second is None else [first, second]
        kept = [
            text[:length] for text, length in zip(whole, fitted([len(t) for t in whole], room), strict=True)
        ]
        cut = sum(map(len, whole)) - sum(map(len, kept))
        begin = np.array([self._cls], np.uint32)
        row = np.concatenate([begin, *(part for text in kept for part in (text, ends))])
        inside = np.concatenate(kept)
        unknown = int((inside == self._unknown).sum()) if self._unknown is not None else 0
        special = int(np.isin(inside, self._inside).sum())
        return row, len(kept[0]) + 2, [int(cut > 0), cut, unknown, special]


def fitted(lengths: Sequence[int], room: int) -> list[int]:
    """Lengths that come to at most `room`, tokens taken from the longer text, of equal ones the second."""
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    first, second = lengths
    if first + second <= room:
        return [first, second]
    if min(first, second) <= room // 2:
        return [first, room - first] if first <= second else [room - second, second]
    return [room - room // 2, room // 2]


def _of_text(first: tuple[str, bool], second: tuple[str, bool]) -> list[int]:
    texts = (first[0], second[0])
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    return [size, sum(map(len, texts)), int(first[1] or second[1])]


def _digest(first: str, second: str | None) -> bytes:
    parts = [first.encode("utf-8", "replace")]
    if second is not None:
        parts.append(second.encode("utf-8", "replace"))
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()
