"""How a word becomes ids of a BERT vocabulary: its longest pieces, or its characters.

A language has few words that are frequent, so each word is cut once and remembered.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping

MAX_WORD_CHARS = 100
"""A longer word is unknown, as in BERT's own code."""
REMEMBERED_WORDS = 1 << 18

Cut = Callable[[str], list[int]]


class WordIds(dict[str, list[int]]):
    """The ids of a word, remembered; `cut` makes them."""

    def __init__(self, cut: Cut) -> None:
        super().__init__()
        self._cut = cut

    def __missing__(self, word: str) -> list[int]:
        if len(self) >= REMEMBERED_WORDS:
            self.clear()
        ids = self[word] = self._cut(word)
        return ids


def wordpiece(vocabulary: Mapping[str, int], unknown: int) -> Cut:
    """Longest piece first, `##` before all but the first; a word that has no such pieces is unknown.

    White space in a word separates words, as in BERT's own code.
    """
    return lambda word: [token for part in word.split() for token in _pieces(part, vocabulary, unknown)]


def characters(vocabulary: Mapping[str, int], unknown: int) -> Cut:
    """Each character by itself, after NFKC."""
    return lambda word: [vocabulary.get(char, unknown) for char in unicodedata.normalize("NFKC", word)]


SUBWORDS: dict[str, Callable[[Mapping[str, int], int], Cut]] = {
    "wordpiece": wordpiece,
    "character": characters,
}


def _pieces(word: str, vocabulary: Mapping[str, int], unknown: int) -> list[int]:
    if len(word) > MAX_WORD_CHARS:
        return [unknown]
    ids, start = [], 0
    while start < len(word):
        mark = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((end for end in ends if mark + word[start:end] in vocabulary), None)
        if end is None:
            return [unknown]
        ids.append(vocabulary[mark + word[start:end]])
        start = end
    return ids
