"""What is hidden of a row, drawn by counter: by the seed, the row and the epoch, and by no other row.

A row's words are tried in random order until the wanted share of them is taken. One that does not fit into
the predictions that are left is passed over, as in BERT, where one prediction is kept for each word still to
come. Of the tokens taken most become the mask token, some a random one, the rest stay. The share is a number
of words, rounded up or down by a draw, so that it holds for short rows as well; a number of tokens would
favour short words.

B rows, S positions, P predictions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kitae.data.counters import Bits, at, mixed, stream_key, uniform
from kitae.data.rows import IGNORED, IntArray

MOST_POSITIONS = 1 << 16
"""A place and a length are 16 bits each of a word's key."""

_FIELD, _LOW = np.uint64(16), np.uint64(MOST_POSITIONS - 1)
_HALF = np.uint64(32)
_NO_WORD = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class Hiding:
    """How tokens are hidden, and all that it depends on."""

    probability: float
    replace: float
    random: float
    max_predictions: int
    dynamic: bool
    seed: int
    vocab_size: int
    mask_id: int
    special_ids: tuple[int, ...]
    """Never hidden, and never what a random token is."""

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Hiding:
        """As `masked.json` has it; raises `TypeError`."""
        return cls(**{**content, "special_ids": tuple(content["special_ids"])})

    @cached_property
    def _special(self) -> NDArray[np.bool_]:
        return np.isin(np.arange(self.vocab_size), self.special_ids)

    @cached_property
    def _ordinary(self) -> IntArray:
        return np.flatnonzero(~self._special)

    def keys(self, numbers: IntArray, epochs: IntArray) -> Bits:
        """[B] what the draws of each row begin from; epochs count only for dynamic masks."""
        begin = np.full(len(numbers), stream_key(self.seed, "masks"), np.uint64)
        rows = at(begin, numbers)
        return at(rows, epochs if self.dynamic else np.zeros_like(epochs))

    def hide(self, ids: IntArray, starts: NDArray[np.bool_], keys: Bits) -> tuple[IntArray, IntArray]:
        """Hide tokens in `ids` [B, S], in place; their positions and what they were, [B, P] each.

        `starts` [B, S]: where words begin, and at every special token.
        """
        words = self._words(ids, starts, keys)
        chosen, counts = _tokens(words, ids.shape, self.max_predictions)
        rows, slots = np.repeat(np.arange(len(ids)), counts), _places_in_runs(counts)
        positions = np.zeros((len(ids), self.max_predictions), np.int64)
        labels = np.full_like(positions, IGNORED)
        positions[rows, slots] = chosen - rows * ids.shape[1]
        flat = ids.reshape(-1)
        labels[rows, slots] = flat[chosen]
        flat[chosen] = self._replaced(flat[chosen], at(mixed(keys.copy())[rows], slots))
        return positions, labels

    def _words(self, ids: IntArray, starts: NDArray[np.bool_], keys: Bits) -> _Words:
        """The words that may be hidden, one after the other, and how many of each row are wanted."""
        size = ids.shape[1]
        begins = np.flatnonzero(starts)
        lengths = np.diff(begins, append=ids.size)
        rows = np.repeat(np.arange(len(ids)), np.count_nonzero(starts, axis=1))
        ordinary = ~self._special[ids.reshape(-1)[begins]]
        begins, lengths, rows = begins[ordinary], lengths[ordinary], rows[ordinary]
        draws = uniform(at(keys, np.full(len(keys), size)))
        wanted = np.floor(self.probability * np.bincount(rows, minlength=len(ids)) + draws)
        order = at(keys[rows], begins - rows * size)
        return _Words(begins, lengths, rows, order, wanted.astype(np.int64))

    def _replaced(self, tokens: IntArray, bits: Bits) -> IntArray:
        """What stands in the place of hidden tokens [N]: the mask token, a random one, or themselves."""
        share = (bits >> _HALF) * 2.0**-32
        drawn = (bits & np.uint64(2**32 - 1)) * np.uint64(len(self._ordinary)) >> _HALF
        masked, changed = share < self.replace, share < self.replace + self.random
        return np.where(masked, self.mask_id, np.where(changed, self._ordinary[drawn], tokens))


@dataclass(frozen=True)
class _Words:
    """W words of all rows."""

    begins: IntArray
    """[W] place of the first token in all rows together."""
    lengths: IntArray
    """[W] tokens."""
    rows: IntArray
    """[W] row, ascending."""
    order: Bits
    """[W] random: words of a row are tried by it, the lowest first."""
    wanted: IntArray
    """[B] words to take."""


def _tokens(words: _Words, shape: tuple[int, ...], most: int) -> tuple[IntArray, IntArray]:
    """Places of the tokens to hide in all rows together, ascending, and [B] how many each row has."""
    rows, size = shape
    packed = words.order & ~np.uint64(2**32 - 1)
    packed |= (words.begins - words.rows * size).astype(np.uint64) << _FIELD
    packed |= words.lengths.astype(np.uint64)
    table = np.full((rows, size), _NO_WORD)
    table.reshape(-1)[words.begins] = packed
    tried = min(size, 2 * most)
    # Twice as many words as there are predictions: more are hardly ever tried.
    if tried < size:
        table = np.partition(table, tried - 1, axis=1)[:, :tried]
    table.sort(axis=1)
    row, column = np.nonzero(_fitting((table & _LOW).astype(np.int64), words.wanted, most))
    found = table[row, column]
    lengths = (found & _LOW).astype(np.int64)
    begins = (found >> _FIELD & _LOW).astype(np.int64) + row * size
    tokens = np.repeat(begins, lengths) + _places_in_runs(lengths)
    tokens.sort()
    return tokens, np.bincount(row, lengths, minlength=rows).astype(np.int64)


def _fitting(lengths: IntArray, wanted: IntArray, most: int) -> NDArray[np.bool_]:
    """[B, W] which words are taken: the first `wanted` [B] that fit into `most` tokens of their row."""
    taken = np.zeros(lengths.shape, np.bool_)
    active, words = np.arange(len(lengths)), np.minimum(wanted, most)
    # With one token kept for each word, only what is longer uses up room.
    room, extra = most - words, lengths - 1
    waiting = (extra <= room[:, None]) & (words > 0)[:, None]
    while len(active):
        tried = np.where(waiting, extra, 0)
        # Room only shrinks: a word that no longer fits is passed over for good.
        fits = waiting & (np.cumsum(tried, axis=1) <= room[:, None])
        fits &= np.cumsum(waiting, axis=1) <= words[:, None]
        taken[active] |= fits
        room, words = room - (tried * fits).sum(axis=1), words - fits.sum(axis=1)
        waiting &= ~fits & (extra <= room[:, None]) & (words > 0)[:, None]
        go_on = waiting.any(axis=1)
        active, extra, waiting = active[go_on], extra[go_on], waiting[go_on]
        room, words = room[go_on], words[go_on]
    return taken


def _places_in_runs(lengths: IntArray) -> IntArray:
    """0, 1, .. up to each of `lengths`, one run after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
