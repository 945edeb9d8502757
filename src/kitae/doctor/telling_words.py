"""Words that tell which dictionary a vocabulary was made with.

A vocabulary is made of the words that its dictionary cuts. Where two dictionaries cut the same text at other
places, a word of the one that runs across a cut of the other can only stand in a vocabulary that the one
made: ipadic leaves `ので` whole where UniDic has two words, and UniDic `でしょう` where ipadic has two.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any
from unicodedata import normalize

from kitae.data.dictionary import Dictionary
from kitae.data.japanese import JapaneseTokenizer, open_mecab

PROBE = "probe_ja.txt"

Span = tuple[int, int]


def probe() -> list[str]:
    """Lines of everyday Japanese."""
    return resources.files("kitae.doctor").joinpath(PROBE).read_text(encoding="utf-8").splitlines()


def telling_words(found: JapaneseTokenizer, other: Dictionary) -> tuple[list[str], list[str]]:
    """Words of the vocabulary that only its own dictionary can have made, and that only the other can."""
    lines = [normalize("NFKC", line) for line in probe()]
    cuts = [[_spans(mecab, line) for line in lines] for mecab in map(open_mecab, (found.dictionary, other))]
    mine, theirs = _across(lines, *cuts), _across(lines, *reversed(cuts))
    return [w for w in mine if w in found.vocabulary], [w for w in theirs if w in found.vocabulary]


def _across(lines: Sequence[str], one: Sequence[list[Span]], other: Sequence[list[Span]]) -> list[str]:
    """Words of the one way to cut that run across a cut of the other, each once."""
    words: dict[str, None] = {}
    for line, spans, others in zip(lines, one, other, strict=True):
        cuts = {place for span in others for place in span}
        for start, end in spans:
            if any(place in cuts for place in range(start + 1, end)):
                words[line[start:end]] = None
    return list(words)


def _spans(mecab: Any, line: str) -> list[Span]:
    spans: list[Span] = []
    place = 0
    for node in mecab(line):
        start = line.index(node.surface, place)
        place = start + len(node.surface)
        spans.append((start, place))
    return spans
