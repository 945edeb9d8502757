"""Documents become sentences of ids, a batch at a time. N documents, M sentences, T tokens of a batch."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kitae.data.normalise import clean
from kitae.data.rows import IntArray
from kitae.data.sentences import SENTENCES
from kitae.data.word_tokenizer import Words, WordTokenizer


@dataclass(frozen=True)
class SentenceSpec:
    """All that the sentences of a document depend on."""

    tokenizer: WordTokenizer
    normalisation: str
    sentences: str
    """A key of `SENTENCES`."""
    whole_word: bool
    """Whether a word of several tokens is one word."""
    longest: int
    """Tokens of a sentence above which it is cut into pieces."""
    piece: int
    """Most tokens of such a piece."""

    def open(self) -> SentenceEncoder:
        """What encodes, in the process that calls this."""
        return SentenceEncoder(self)


@dataclass(frozen=True)
class SentenceBatch:
    """Encoded documents, one sentence after the other."""

    ids: NDArray[np.uint32]
    """[T] nothing added."""
    starts: NDArray[np.bool_]
    """[T] where words begin, and at special tokens."""
    lengths: IntArray
    """[M] tokens of each sentence, above 0."""
    sentences: IntArray
    """[N] sentences of each document; 0 for an empty one."""
    cut: IntArray
    """[N] sentences that were too long and became several."""
    num_bytes: IntArray
    """[N] bytes of each document's text as UTF-8."""
    num_chars: IntArray
    """[N] characters."""
    changed: NDArray[np.bool_]
    """[N] whether normalisation changed the document."""
    digests: list[bytes]
    """[N] hash of each document's text."""

    @property
    def full(self) -> NDArray[np.bool_]:
        """[N] whether each document has sentences."""
        return self.sentences > 0

    def select(self, chosen: NDArray[np.bool_]) -> SentenceBatch:
        """The documents for which `chosen` [N] is true."""
        sentences = np.repeat(chosen, self.sentences)
        tokens = np.repeat(sentences, self.lengths)
        return SentenceBatch(
            self.ids[tokens],
            self.starts[tokens],
            self.lengths[sentences],
            self.sentences[chosen],
            self.cut[chosen],
            self.num_bytes[chosen],
            self.num_chars[chosen],
            self.changed[chosen],
            list(itertools.compress(self.digests, chosen)),
        )


class SentenceEncoder:
    """Turns documents into batches of sentences in the process that it lives in."""

    def __init__(self, spec: SentenceSpec) -> None:
        self._spec = spec
        self._split = SENTENCES[spec.sentences]
        self._special = np.array(sorted(spec.tokenizer.special.all), np.uint32)

    def __call__(self, texts: Sequence[str]) -> SentenceBatch:
        """Split and encode; documents in which the tokenizer finds nothing come out empty."""
        cleaned = [clean(text, self._spec.normalisation) for text in texts]
        raw = [text.encode("utf-8") for text, _ in cleaned]
        split = [self._split(text) for text, _ in cleaned]
        encoded = self._spec.tokenizer.words_batch([sentence for document in split for sentence in document])
        ids = np.concatenate([words.ids for words in encoded] or [np.zeros(0, np.uint32)])
        starts = self._starts(encoded, ids)
        lengths = np.array([len(words.ids) for words in encoded], np.int64)
        pieces = self._pieces(lengths, starts)
        owner = np.repeat(np.arange(len(split)), [len(document) for document in split])
        counts = np.array([len(piece) for piece in pieces], np.int64)
        lengths = np.array([length for piece in pieces for length in piece], np.int64)
        starts[np.cumsum(lengths) - lengths] = True
        return SentenceBatch(
            ids=ids,
            starts=starts,
            lengths=lengths,
            sentences=_sums(owner, counts, len(split)),
            cut=_sums(owner, counts > 1, len(split)),
            num_bytes=np.array([len(text) for text in raw], np.int64),
            num_chars=np.array([len(text) for text, _ in cleaned], np.int64),
            changed=np.array([changed for _, changed in cleaned], np.bool_),
            digests=[hashlib.blake2b(text, digest_size=16).digest() for text in raw],
        )

    def _starts(self, encoded: list[Words], ids: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Where words begin: special tokens, and what follows them, are words of their own."""
        if not self._spec.whole_word:
            return np.ones(len(ids), np.bool_)
        starts = np.concatenate([words.starts for words in encoded] or [np.zeros(0, np.bool_)])
        special = np.isin(ids, self._special)
        starts |= special
        starts[1:] |= special[:-1]
        return starts

    def _pieces(self, lengths: IntArray, starts: NDArray[np.bool_]) -> list[list[int]]:
        """What each sentence is cut into: mostly itself; nothing of one without tokens."""
        pieces = [[length] if length else [] for length in lengths.tolist()]
        ends = np.cumsum(lengths)
        for sentence in np.flatnonzero(lengths > self._spec.longest):
            words = starts[ends[sentence] - lengths[sentence] : ends[sentence]]
            pieces[sentence] = _cut(words, self._spec.piece)
        return pieces


def _cut(starts: NDArray[np.bool_], most: int) -> list[int]:
    """Lengths of pieces of at most `most` tokens, which end with a word where that is possible."""
    begins = np.flatnonzero(starts)
    found, begin = [], 0
    while len(starts) - begin > most:
        first, last = np.searchsorted(begins, [begin, begin + most], "right")
        end = int(begins[last - 1]) if last > first else begin + most
        found.append(end - begin)
        begin = end
    return [*found, len(starts) - begin]


def _sums(owner: IntArray, numbers: NDArray[np.integer | np.bool_], count: int) -> IntArray:
    """[count] the sum of the numbers of each owner."""
    return np.bincount(owner, numbers, minlength=count).astype(np.int64)
