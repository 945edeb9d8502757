"""Where tokens stand in the text that they were made of, also when it was normalised before.

Found by walking along the text: neither MeCab nor a Python tokenizer says it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from unicodedata import combining, normalize

Span = tuple[int, int]
"""Characters from, and up to."""


def aligned(
    text: str, surfaces: Sequence[str], lengths: Sequence[Sequence[int]], *, normalised: bool
) -> list[Span]:
    """The span in `text` of every piece of every word.

    `surfaces` are the words as they follow each other in the text (after NFKC when `normalised`), and
    `lengths` the characters of each one's pieces; a piece has the whole word where they do not add up.
    """
    shown, origins = _normalised(text) if normalised else (text, [(n, n + 1) for n in range(len(text))])
    spans: list[Span] = []
    place = 0
    for surface, pieces in zip(surfaces, lengths, strict=True):
        begin = shown.index(surface, place)
        place = begin + len(surface)
        for start, end in _within(len(surface), pieces):
            spans.append((origins[begin + start][0], origins[begin + end - 1][1]))
    return spans


def _within(length: int, pieces: Sequence[int]) -> list[Span]:
    """Each piece's place in its word."""
    if sum(pieces) != length or 0 in pieces:
        return [(0, length)] * len(pieces)
    ends = list(accumulate(pieces))
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _normalised(text: str) -> tuple[str, list[Span]]:
    """The text in NFKC, and for each of its characters where it came from."""
    shown, origins, place = [], [], 0
    for cluster in _clusters(text):
        part = normalize("NFKC", cluster)
        shown.append(part)
        origins += [(place, place + len(cluster))] * len(part)
        place += len(cluster)
    return "".join(shown), origins


def _clusters(text: str) -> Iterator[str]:
    """The shortest parts of which each is normalised by itself."""
    cluster = text[:1]
    for char in text[1:]:
        apart = normalize("NFKC", cluster) + normalize("NFKC", char)
        if not combining(char) and normalize("NFKC", cluster + char) == apart:
            yield cluster
            cluster = char
        else:
            cluster += char
    if cluster:
        yield cluster
