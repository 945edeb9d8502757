"""Tokens of many texts, one after the other, and arithmetic on all of them at once. N texts, T tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kitae.data.tokenizer import Ids


@dataclass(frozen=True)
class Ragged:
    """Tokens of texts, one after the other."""

    ids: Ids
    """[T]."""
    lengths: NDArray[np.int64]
    """[N]."""

    @classmethod
    def of(cls, texts: Sequence[Ids]) -> Ragged:
        """Of the tokens of each text."""
        lengths = np.array([len(text) for text in texts], np.int64)
        return cls(np.concatenate([np.zeros(0, np.uint32), *texts]), lengths)

    def emptied(self) -> Ragged:
        """As many texts without tokens."""
        return Ragged(self.ids[:0], np.zeros_like(self.lengths))

    def within(self) -> NDArray[np.int64]:
        """[T] the place of each token in its text."""
        return np.arange(len(self.ids)) - np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)

    def cut(self, lengths: NDArray[np.int64]) -> Ragged:
        """The first tokens of each text."""
        return Ragged(self.ids[self.within() < np.repeat(lengths, self.lengths)], lengths)

    def places(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """[T] where each token goes when the texts begin at `starts` [N]."""
        return np.repeat(starts, self.lengths) + self.within()

    def count(self, wanted: Ids) -> NDArray[np.int64]:
        """[N] how many tokens of each text are among `wanted`."""
        found = np.isin(self.ids, wanted)
        text = np.repeat(np.arange(len(self.lengths)), self.lengths)
        return np.bincount(text[found], minlength=len(self.lengths))


def fitted(
    first: NDArray[np.int64], second: NDArray[np.int64], room: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths [N] that come to at most `room`: tokens go from the longer text, of equal ones the second."""
    half = room // 2
    shorter_first = first <= second
    both_long = np.minimum(first, second) > half
    kept = np.where(shorter_first, first, room - second)
    kept = np.where(both_long, room - half, kept)
    kept = np.where(first + second > room, kept, first)
    return kept, np.where(first + second > room, room - kept, second)
