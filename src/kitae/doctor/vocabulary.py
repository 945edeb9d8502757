"""Whether a tokenizer, its dictionary, its model and the text belong together.

A vocabulary is made of the words that its dictionary cuts. Where two dictionaries cut the same text at other
places, a word of the one that runs across a cut of the other can only stand in a vocabulary that the one
made: ipadic leaves `ので` whole where UniDic has two words, and UniDic `でしょう` where ipadic has two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any
from unicodedata import normalize

from kitae.data.dictionary import PACKAGES, Dictionary, find_dictionary
from kitae.data.japanese import JapaneseTokenizer, open_mecab
from kitae.data.word_tokenizer import PieceTokenizer, WordTokenizer
from kitae.doctor.finding import Finding, Patient
from kitae.errors import DataError

PROBE = "probe_ja.txt"
MANY_UNKNOWN = 0.05
FEW_WORDS = 1
"""So many words of another dictionary may stand in a vocabulary by chance."""

Span = tuple[int, int]


def tokenizer(patient: Patient) -> Iterator[Finding]:
    """Whether it loads, and which of its tokens are special."""
    found = patient.loaded
    if found is None:
        return
    special = found.special
    roles = [f"{role} {number}" for role, number in vars(special).items() if isinstance(number, int)]
    shown = f"; {', '.join(roles)}" if roles else "; no special tokens of BERT"
    yield Finding("ok", "tokenizer", f"{_kind(found)}, {found.vocab_size:,} ids{shown}")


def embedding(patient: Patient) -> Iterator[Finding]:
    """Whether the model has a row for every id."""
    found, rows = patient.loaded, patient.embedding_rows
    if found is None or rows is None:
        return
    if found.vocab_size > rows:
        text = (
            f"the tokenizer knows ids up to {found.vocab_size - 1}, and the model has {rows:,} rows; texts "
            "with the ids beyond stop: take the tokenizer that belongs to the model"
        )
        yield Finding("note", "embedding", text)
    else:
        yield Finding("ok", "embedding", f"{rows:,} rows for {found.vocab_size:,} ids")


def dictionary(patient: Patient) -> Iterator[Finding]:
    """Whether MeCab starts with the dictionary that the tokenizer names."""
    found = patient.loaded
    if isinstance(found, JapaneseTokenizer):
        found.surfaces("辞書を開く")
        yield Finding("ok", "dictionary", f"{found.dictionary.name} ({_version(found.dictionary)})")


def vocabulary(patient: Patient) -> Iterator[Finding]:
    """How much of the text the vocabulary knows."""
    found = patient.loaded
    if found is None:
        return
    texts = patient.texts() if patient.texts is not None else _probe_for(found)
    if not texts:
        return
    where = "of the recipe's text" if patient.texts is not None else "of a probe text"
    coverage = measure(found, texts)
    text = f"{coverage} {where}"
    if coverage.unknown > MANY_UNKNOWN:
        yield Finding("note", "vocabulary", f"{text}: these are many; it was hardly made for such text")
    else:
        yield Finding("ok", "vocabulary", text)


def same_dictionary(patient: Patient) -> Iterator[Finding]:
    """Whether the vocabulary was made with the dictionary that it is used with."""
    found = patient.loaded
    if not isinstance(found, JapaneseTokenizer):
        return
    own = found.dictionary
    for name in PACKAGES:
        other = None if name == own.name else _installed(name)
        if other is None:
            continue
        mine, theirs = telling_words(found, other)
        if len(theirs) > max(FEW_WORDS, len(mine)):
            text = (
                f"the vocabulary holds {len(theirs)} words that only {name} makes ({_some(theirs)}) and "
                f"{len(mine)} that only {own.name} makes: it was made with {name}; take that dictionary, or "
                f"a vocabulary made with {own.name}"
            )
            yield Finding("fail", "dictionary", text)
        elif mine:
            text = f"the vocabulary holds {len(mine)} words that {name} would not make ({_some(mine)})"
            yield Finding("ok", "dictionary", text)


@dataclass(frozen=True)
class Coverage:
    """How a tokenizer cuts a text."""

    words: int
    tokens: int
    whole: float
    """Share of words that are one known token."""
    unknown: float
    """Share of tokens that are unknown."""

    def __str__(self) -> str:
        return (
            f"{self.whole:.1%} of {self.words:,} words are whole, "
            f"{self.tokens / max(1, self.words):.2f} tokens a word, {self.unknown:.2%} unknown tokens"
        )


def measure(found: WordTokenizer, texts: Sequence[str]) -> Coverage:
    """How a tokenizer cuts texts."""
    words = tokens = whole = unknown = 0
    for ids, starts in found.words_batch(texts):
        ends = [*starts[1:], True]
        known = ids != found.special.unk if found.special.unk is not None else starts | True
        words += int(starts.sum())
        tokens += len(ids)
        whole += int((starts & known & ends).sum()) if len(ids) else 0
        unknown += int((~known).sum())
    return Coverage(words, tokens, whole / max(1, words), unknown / max(1, tokens))


def telling_words(found: JapaneseTokenizer, other: Dictionary) -> tuple[list[str], list[str]]:
    """Words of the vocabulary that only its own dictionary can have made, and that only the other can."""
    lines = [normalize("NFKC", line) for line in _probe()]
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


def _kind(found: WordTokenizer) -> str:
    if isinstance(found, JapaneseTokenizer):
        return f"MeCab and {found.cutting.subword}"
    return type(found.text.backend.model).__name__ if isinstance(found, PieceTokenizer) else "unknown"


def _installed(name: str) -> Dictionary | None:
    try:
        return find_dictionary(name)
    except DataError:
        return None


def _probe_for(found: WordTokenizer) -> list[str]:
    """A text that the tokenizer was made for, as far as that is known."""
    return _probe() if isinstance(found, JapaneseTokenizer) else []


def _probe() -> list[str]:
    return resources.files("kitae.doctor").joinpath(PROBE).read_text(encoding="utf-8").splitlines()


def _version(dictionary: Dictionary) -> str:
    return dictionary.identity if dictionary.name in PACKAGES else "a folder"


def _some(words: Sequence[str]) -> str:
    return ", ".join(words[:4])
