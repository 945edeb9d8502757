"""Whether a tokenizer, its dictionary, its model and the text belong together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kitae.data.dictionary import PACKAGES, Dictionary, find_dictionary
from kitae.data.japanese import JapaneseTokenizer
from kitae.data.word_tokenizer import PieceTokenizer, WordTokenizer
from kitae.doctor.finding import Finding, Patient
from kitae.doctor.telling_words import probe, telling_words
from kitae.errors import DataError

MANY_UNKNOWN = 0.05
FEW_WORDS = 1
"""So many words of another dictionary may stand in a vocabulary by chance."""


def reach(patient: Patient) -> Iterator[Finding]:
    """Whether the recipe's tokenizer and model are there to be looked at."""
    if patient.out_of_reach:
        level = "fail" if patient.target is None else patient.target.missing
        yield Finding(level, "recipe", patient.out_of_reach)


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
    return probe() if isinstance(found, JapaneseTokenizer) else []


def _version(dictionary: Dictionary) -> str:
    return dictionary.identity if dictionary.name in PACKAGES else "a folder"


def _some(words: Sequence[str]) -> str:
    return ", ".join(words[:4])
