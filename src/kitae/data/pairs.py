"""Which sentences make a row: pairs of texts as in the BERT paper, or runs of sentences.

Here are only places in a run of tokens; `masked_split` makes rows of them. S positions in a row, of which
[CLS] A [SEP] B [SEP] take 3 and [CLS] A [SEP] take 2.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kitae.data.counters import Stream, stream_key
from kitae.data.rows import IGNORED

SHORTEST = 2
"""Tokens that a row cut short has at least, as in BERT."""
IS_NEXT, IS_RANDOM = 0, 1


class Piece(NamedTuple):
    """A row: its first text, its second one, and what is to be told of them."""

    first: int
    """Place of A's first token."""
    first_end: int
    second: int
    """Place of B's first token; equal to its end where there is no pair."""
    second_end: int
    next_sentence: int


@dataclass
class Counts:
    """Tokens of the documents by where they went, and pairs by kind."""

    own: int = 0
    """In a row of their own document."""
    borrowed: int = 0
    """In a row as a random second text, once more."""
    cut_off: int = 0
    """In no row of their own document: what was too much for a row."""
    random_pairs: int = 0


class Documents(Protocol):
    """Documents by number."""

    def __len__(self) -> int:
        """Documents."""
        ...

    def places(self, document: int) -> list[int]:
        """Where the sentences begin, and where the last one ends."""
        ...


class Runs:
    """Rows of whole sentences of one document, as many as fit."""

    framing = 2

    def __init__(self, documents: Documents, size: int, short: float, seed: int, split: str) -> None:
        self._documents = documents
        self._most = size - self.framing
        self._short = short
        self._key = stream_key(seed, f"rows:{split}")
        self.counts = Counts()

    def pieces(self) -> Iterator[Piece]:
        """The rows of all documents, in their order."""
        for document in range(len(self._documents)):
            draws = Stream(self._key, document)
            yield from self._of(document, self._documents.places(document), draws)

    def _target(self, draws: Stream) -> int:
        """Tokens that the next row is filled to."""
        if draws.uniform() < self._short:
            return SHORTEST + draws.below(max(1, self._most - SHORTEST + 1))
        return self._most

    def _of(self, document: int, places: list[int], draws: Stream) -> Iterator[Piece]:
        begin = 0
        while begin < len(places) - 1:
            fits = bisect_left(places, places[begin] + self._target(draws) + 1) - 1
            end = max(begin + 1, fits)
            self.counts.own += places[end] - places[begin]
            yield Piece(places[begin], places[end], places[end], places[end], IGNORED)
            begin = end


class Pairs(Runs):
    """Rows of two texts: the second one follows the first, or is from another document in half of the rows.

    A text with nothing behind it gets a random second text, as in BERT; here as many fewer are drawn
    elsewhere, so that both kinds stay as frequent.
    """

    framing = 3

    def __init__(self, documents: Documents, size: int, short: float, seed: int, split: str) -> None:
        super().__init__(documents, size, short, seed, split)
        self._surplus = 0.0

    def _of(self, document: int, places: list[int], draws: Stream) -> Iterator[Piece]:
        begin = 0
        while begin < len(places) - 1:
            target = self._target(draws)
            end = min(bisect_left(places, places[begin] + target, begin + 1), len(places) - 1)
            sentences = end - begin
            middle = begin + 1 + (draws.below(sentences - 1) if sentences > 1 else 0)
            if self._is_random(draws, forced=sentences == 1):
                second = self._elsewhere(document, target - (places[middle] - places[begin]), draws)
                yield self._fitted(places[begin], places[middle], *second, IS_RANDOM, draws)
                begin = middle
            else:
                yield self._fitted(places[begin], places[middle], places[middle], places[end], IS_NEXT, draws)
                begin = end

    def _is_random(self, draws: Stream, *, forced: bool) -> bool:
        """Whether the second text is a random one, which it must be when `forced`."""
        drawn = draws.uniform() < 0.5
        if forced:
            self._surplus += 0.5
            return True
        if drawn and self._surplus >= 1:
            self._surplus -= 1
            return False
        return drawn

    def _elsewhere(self, document: int, wanted: int, draws: Stream) -> tuple[int, int]:
        """Sentences of another document, from a random one on, with `wanted` tokens if there are as many."""
        other = draws.below(len(self._documents) - 1)
        places = self._documents.places(other + (other >= document))
        begin = draws.below(len(places) - 1)
        end = bisect_left(places, places[begin] + wanted, begin + 1)
        return places[begin], places[min(end, len(places) - 1)]

    def _fitted(
        self, first: int, first_end: int, second: int, second_end: int, kind: int, draws: Stream
    ) -> Piece:
        """The pair, cut to what a row holds: from the longer text, at either end."""
        cuts = _excess(first_end - first, second_end - second, self._most)
        front, front_second = (_at_front(cut, draws) for cut in cuts)
        piece = Piece(
            first + front,
            first_end - (cuts[0] - front),
            second + front_second,
            second_end - (cuts[1] - front_second),
            kind,
        )
        own, other = first_end - first - cuts[0], second_end - second - cuts[1]
        if kind == IS_RANDOM:
            self.counts.random_pairs += 1
            self.counts.borrowed += other
            self.counts.own, self.counts.cut_off = self.counts.own + own, self.counts.cut_off + cuts[0]
        else:
            self.counts.own += own + other
            self.counts.cut_off += sum(cuts)
        return piece


def _excess(first: int, second: int, most: int) -> tuple[int, int]:
    """How many tokens to cut from two texts, one at a time from the longer one, the second where equal."""
    excess = max(0, first + second - most)
    uneven = min(excess, abs(first - second))
    rest = excess - uneven
    cut_first, cut_second = rest // 2, rest - rest // 2
    return (cut_first + uneven, cut_second) if first > second else (cut_first, cut_second + uneven)


def _at_front(cut: int, draws: Stream) -> int:
    """How many of `cut` tokens are cut at the front, each with even chance."""
    found = 0
    for begin in range(0, cut, 64):
        found += (draws.bits() >> max(0, 64 - (cut - begin))).bit_count()
    return found
