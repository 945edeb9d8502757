"""Tatoeba's Japanese sentences: training and held-out parts, and weak labels by their English translations.

A label is the sign of VADER's score for the English sentence, so it is **weak: labelled by translation**, by
a list of words, and no person has looked at it. Sentences are shared out by their English translation, which
several Japanese sentences can have in common: what one of them means is never in both parts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unicodedata import normalize

Score = Callable[[str], float]
"""From an English sentence to -1 .. 1."""

NONE = "-"
HELDOUT = 0.05
"""Share of English sentences that are held out."""
CLEAR = 0.5
"""What a score has to be at least, in either direction, for a label."""
HELDOUT_EACH = 400
"""Held-out labelled sentences of either kind."""


@dataclass(frozen=True)
class Sentence:
    """A Japanese sentence."""

    number: int
    """Tatoeba's, by which its authors are found."""
    text: str
    english: str | None


@dataclass(frozen=True)
class Labelled:
    """A sentence with its weak label."""

    sentence: Sentence
    score: float

    @property
    def label(self) -> str:
        """The sign of the score in a word."""
        return "positive" if self.score > 0 else "negative"

    def line(self) -> str:
        """As a JSON line."""
        values = {"text": self.sentence.text, "label": self.label, "score": self.score}
        return json.dumps({**values, "tatoeba_id": self.sentence.number}, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Parts:
    """What is trained on, and what is held out."""

    train: list[Sentence]
    heldout: list[Sentence]


def read_sentences(path: Path) -> list[Sentence]:
    """The file of the package: number, Japanese, English and five more columns, between tabs."""
    rows = (line.rstrip("\n").split("\t") for line in path.open(encoding="utf-8"))
    return [Sentence(int(row[0]), row[1], None if row[2] == NONE else row[2]) for row in rows]


def plain(text: str) -> str:
    """Letters and digits alone, in one form, so that copies of a sentence are known as such."""
    return "".join(re.findall(r"\w", normalize("NFKC", text).casefold()))


def share_out(sentences: Iterable[Sentence]) -> Parts:
    """Train and held-out parts, by a hash of the English sentence, or of the Japanese one without it.

    A sentence that is in the held-out part too, but for punctuation, is left out of training.
    """
    ordered = sorted(sentences, key=_draw)
    heldout = [one for one in ordered if _hash(plain(one.english or one.text)) < HELDOUT]
    known = {plain(one.text) for one in heldout}
    held = {one.number for one in heldout}
    train = [one for one in ordered if one.number not in held and plain(one.text) not in known]
    return Parts(train, heldout)


def label(sentences: Iterable[Sentence], score: Score) -> list[Labelled]:
    """Those whose English sentence is clearly one or the other."""
    scored = (Labelled(one, score(one.english)) for one in sentences if one.english is not None)
    return [one for one in scored if abs(one.score) >= CLEAR]


def balanced(labelled: Sequence[Labelled], each: int | None = None) -> list[Labelled]:
    """As many of one label as of the other, the first ones of both; at most `each`."""
    counts = Counter(one.label for one in labelled)
    most = min(counts["positive"], counts["negative"], *([] if each is None else [each]))
    taken: Counter[str] = Counter()
    found = []
    for one in labelled:
        taken[one.label] += 1
        if taken[one.label] <= most:
            found.append(one)
    return found


def one_a_meaning(labelled: Iterable[Labelled]) -> list[Labelled]:
    """The first of those with the same English sentence."""
    found: dict[str, Labelled] = {}
    for one in labelled:
        found.setdefault(plain(one.sentence.english or ""), one)
    return list(found.values())


def vader() -> Score:
    """VADER's compound score (Hutto and Gilbert, 2014)."""
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    analyzer = SentimentIntensityAnalyzer()
    return lambda text: float(analyzer.polarity_scores(text)["compound"])


def _hash(text: str) -> float:
    """From 0 to 1."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def _draw(sentence: Sentence) -> float:
    return _hash(f"order {sentence.number}")
