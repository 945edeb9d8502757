"""Texts, or pairs of them, become the rows of a classifier: [CLS] A [SEP], or [CLS] A [SEP] B [SEP].

What is too long is cut at its end: of a pair the longer text, and of two that are equal the second. A batch
is framed as a whole, in arrays. N texts, T tokens of all of them.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kitae.data.normalise import clean
from kitae.data.ragged import Ragged, fitted
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
        self._unknown = np.array([] if special.unk is None else [special.unk], np.uint32)
        self._special = np.array(sorted(special.all - {special.unk}), np.uint32)

    def __call__(self, contents: Sequence[Content]) -> Encoded:
        """Encode; texts that are left out, blank, or that the tokenizer finds nothing in, come out empty."""
        texts = [("", None) if content is None else content for content in contents]
        is_pair = np.array([second is not None for _, second in texts], np.bool_)
        firsts = [clean(first, self._spec.normalisation) for first, _ in texts]
        seconds = [clean(second or "", self._spec.normalisation) for _, second in texts]
        first = self._ragged([text if text.strip() else "" for text, _ in firsts])
        second = self._ragged([text for text, _ in seconds]) if is_pair.any() else first.emptied()
        raw = [
            (one.encode("utf-8"), two.encode("utf-8"))
            for (one, _), (two, _) in zip(firsts, seconds, strict=True)
        ]
        rows, of_tokens = self._rows(first, second, is_pair)
        of_texts = [
            [len(one) + len(two), len(first[0]) + len(second[0]), first[1] or second[1]]
            for (one, two), first, second in zip(raw, firsts, seconds, strict=True)
        ]
        return Encoded(
            **rows,
            counts=np.hstack([np.array(of_texts, np.int64).reshape(len(texts), 3), of_tokens]),
            digests=[
                hashlib.blake2b(one + b"\0" + two if pair else one, digest_size=16).digest()
                for (one, two), pair in zip(raw, is_pair, strict=True)
            ],
        )

    def _ragged(self, texts: Sequence[str]) -> Ragged:
        return Ragged.of(self._spec.tokenizer.encode_batch(texts))

    def _rows(
        self, first: Ragged, second: Ragged, is_pair: NDArray[np.bool_]
    ) -> tuple[dict[str, Any], NDArray[np.int64]]:
        """Framed tokens with their lengths and those of first texts, and [N, 4] what is counted of tokens."""
        there = first.lengths > 0
        room = self._spec.sequence_length - np.where(is_pair, 3, 2)
        kept_first, kept_second = fitted(first.lengths, second.lengths * there, room)
        cut = (first.lengths + second.lengths) * there - kept_first - kept_second
        first, second = first.cut(kept_first), second.cut(kept_second)
        frames = np.where(is_pair, 3, 2) * there
        lengths = kept_first + kept_second + frames
        starts = np.cumsum(lengths) - lengths
        ids = np.full(int(lengths.sum()), self._sep, np.uint32)
        ids[starts[there]] = self._cls
        ids[first.places(starts + 1)] = first.ids
        ids[second.places(starts + kept_first + 2)] = second.ids
        counted = [first.count(wanted) + second.count(wanted) for wanted in (self._unknown, self._special)]
        of_tokens = np.stack([cut > 0, cut, *counted], axis=1).astype(np.int64)
        return {"ids": ids, "lengths": lengths, "firsts": (kept_first + 2) * there}, of_tokens
