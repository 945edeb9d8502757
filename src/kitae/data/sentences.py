r"""Where sentences end, in English and Japanese, by rules; or one sentence a line.

- Japanese: behind 。！？．, with further marks and closing brackets and quotes, but not inside a pair of
  brackets, nor where と or the like follows a quotation: that belongs to the sentence around it.
- English: behind . ! ? and what closes, when white space follows and then something that may begin a
  sentence: anything but a small letter. Not behind a title or an abbreviation (Mr. Dr. e.g.), a single
  capital letter (J. Austen) or a number in a list (3. ).
- A blank line always ends a sentence; a single \n does not, because texts are wrapped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_ABBREVIATION = re.compile(
    r"mr|mrs|ms|dr|prof|st|sr|jr|rev|hon|gen|col|capt|lt|sgt|gov|sen|rep|pres|messrs|mme|mlle|esq|vs|etc|cf|al"
    r"|e\.g|i\.e|viz|fig|figs|eq|nos|vol|ch|pp|ed|eds|inc|ltd|co|corp|dept|est|approx|jan|feb|mar|apr|jun|jul"
    r"|aug|sept?|oct|nov|dec|u\.s|u\.k|a\.m|p\.m|ph\.d",
    re.IGNORECASE,
)
_PAIRS = dict(zip("「『（(【《〈［[", "」』）)】》〉］]", strict=True))
_BRACKET = re.compile(f"[{re.escape(''.join([*_PAIRS, *_PAIRS.values()]))}]")
_WIDE, _NARROW = "。！？．｡", ".!?…"
_END = re.compile(rf"[{_WIDE}]+[{_WIDE}{_NARROW}]*|[{_NARROW}]+")
_AFTER = re.compile(rf"[{re.escape(''.join(_PAIRS.values()))}\"'”’»]*")
_QUOTING = re.compile("と|って|など|の|を|が|は|に|も")
"""What follows a quotation that the sentence goes on behind."""
_BLANK_LINES = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")
_WORD_BEFORE = re.compile(r"[^\s(\"'“‘\[]+$")
_NUMBER = re.compile(r"(?:^|\n)\s*\d{1,3}$")
_LONGEST_LOOK = 40
"""Characters before a full stop in which its abbreviation is looked for."""
_LONGEST_QUOTATION = 300
"""Characters in brackets that are kept together; longer ones, and brackets without partner, are text."""
_NOWHERE = (1 << 62, 1 << 62)


def by_punctuation(text: str) -> list[str]:
    """The sentences of a text, without white space around them; none is empty."""
    return [sentence for block in _BLANK_LINES.split(text) for sentence in _of_block(block)]


def by_line(text: str) -> list[str]:
    """The lines of a text that are not blank, without white space around them."""
    return [line for line in (line.strip() for line in text.split("\n")) if line]


SENTENCES: dict[str, Callable[[str], list[str]]] = {"punctuation": by_punctuation, "line": by_line}
"""By the recipe's `data.masking.sentences`."""


def _of_block(block: str) -> Iterator[str]:
    start = 0
    for end in _ends(block):
        if sentence := block[start:end].strip():
            yield sentence
        start = end
    if rest := block[start:].strip():
        yield rest


def _ends(block: str) -> Iterator[int]:
    """Where sentences end in a block of text."""
    quoted = iter(_bracketed(block))
    start, stop = next(quoted, _NOWHERE)
    for match in _END.finditer(block):
        while stop <= match.start():
            start, stop = next(quoted, _NOWHERE)
        end = _AFTER.match(block, match.end()).end()  # type: ignore[union-attr]  # it also matches nothing
        inside = start < match.start() and end < stop
        if match[0][0] in _WIDE:
            goes_on = end > match.end() and _QUOTING.match(block, end)
            if not inside and not goes_on:
                yield end
        elif _ends_english(block, match, end):
            yield end


def _bracketed(block: str) -> list[tuple[int, int]]:
    """Begin and end of each outermost pair of brackets that is not too long."""
    opened: list[tuple[str, int]] = []
    spans: list[tuple[int, int]] = []
    for match in _BRACKET.finditer(block):
        partner = _PAIRS.get(match[0])
        if partner is not None:
            opened.append((partner, match.start()))
            continue
        while opened and match.start() - opened[-1][1] > _LONGEST_QUOTATION:
            opened.pop()
        if opened and opened[-1][0] == match[0]:
            _, start = opened.pop()
            while spans and spans[-1][0] > start:
                spans.pop()
            spans.append((start, match.end()))
    return spans


def _ends_english(block: str, match: re.Match[str], end: int) -> bool:
    behind = block[end : end + 1]
    if behind and not behind.isspace():
        return False
    following = block[end : end + _LONGEST_LOOK].lstrip()[:1]
    if following.islower():
        return False
    return match[0] != "." or not _abbreviates(block[max(0, match.start() - _LONGEST_LOOK) : match.start()])


def _abbreviates(before: str) -> bool:
    """Whether a full stop behind `before` is part of an abbreviation or of a list's number."""
    if _NUMBER.search(before):
        return True
    match = _WORD_BEFORE.search(before)
    word = match[0] if match is not None else ""
    return bool(_ABBREVIATION.fullmatch(word)) or (len(word) == 1 and word.isupper() and word != "I")
