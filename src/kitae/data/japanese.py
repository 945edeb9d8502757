"""Japanese text through MeCab: the ids of transformers' `BertJapaneseTokenizer`, many times as fast.

A text is cut at added tokens, normalised (NFKC), cut into words by MeCab, and each word into pieces of the
vocabulary. T tokens of a text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np

from kitae.data.added_tokens import AddedToken, AddedTokens
from kitae.data.alignment import Span, aligned
from kitae.data.dictionary import Dictionary
from kitae.data.japanese_files import (
    VOCABULARY,
    Cutting,
    dictionary_of,
    japanese_fingerprint,
    read_added,
    read_cutting,
    read_vocabulary,
)
from kitae.data.special_tokens import SpecialIds, special_ids_of, tokenizer_settings
from kitae.data.subwords import SUBWORDS, WordIds
from kitae.data.tokenizer import Ids
from kitae.data.word_tokenizer import Words
from kitae.errors import DataError


@dataclass(frozen=True)
class JapaneseTokenizer:
    """A BERT vocabulary whose words are cut by MeCab; a copy in another process starts its own MeCab."""

    vocabulary: Mapping[str, int]
    added: tuple[AddedToken, ...]
    special: SpecialIds
    cutting: Cutting
    dictionary: Dictionary
    fingerprint: str
    """SHA-256 over the tokenizer's files, the dictionary, and the versions that cut and normalise."""

    @classmethod
    def load(cls, folder: Path, dictionary: str | None = None) -> JapaneseTokenizer:
        """Load a folder by its files and the recipe's dictionary; raises `DataError`."""
        settings = tokenizer_settings(folder)
        found = dictionary_of(folder, settings, dictionary)
        vocabulary = read_vocabulary(folder / VOCABULARY)
        added = read_added(folder, settings, vocabulary)
        known = {**vocabulary, **{token.text: token.id for token in added}}
        special = special_ids_of(settings, known, [token.id for token in added if token.special])
        special.need("unk")
        return cls(
            vocabulary=vocabulary,
            added=added,
            special=special,
            cutting=read_cutting(folder, settings, added),
            dictionary=found,
            fingerprint=japanese_fingerprint(folder, found),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Without MeCab and the words remembered, neither of which can travel."""
        fields = (self.vocabulary, self.added, self.special, self.cutting, self.dictionary, self.fingerprint)
        return JapaneseTokenizer, fields

    @cached_property
    def vocab_size(self) -> int:
        """Largest id plus one, added tokens included."""
        return max((*self.vocabulary.values(), *(token.id for token in self.added))) + 1

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text (uint32), nothing added; raises `DataError`."""
        return [
            np.array([token for word in self._words(text) for token in word], np.uint32) for text in texts
        ]

    def words_batch(self, texts: Sequence[str]) -> list[Words]:
        """Ids of each text and where MeCab's words begin; raises `DataError`."""
        return [_as_words(list(self._words(text))) for text in texts]

    def surfaces(self, text: str) -> list[str]:
        """MeCab's words as they stand in the text, after NFKC where that is done; added tokens whole."""
        return [
            surface
            for part in self._added.split(text)
            for surface in ([part.text] if part.token else self._cut(part.text))
        ]

    def offsets(self, text: str) -> list[Span]:
        """Where each token of `text` stands in it, as characters from and up to; raises `DataError`.

        Found by alignment: a piece of a word that NFKC or lower case changed in length has the whole word.
        """
        surfaces = self.surfaces(text)
        lengths = [[len(piece) for piece in self._pieces_of(surface)] for surface in surfaces]
        return aligned(text, surfaces, lengths, normalised=self.cutting.normalise)

    def token(self, token_id: int) -> str:
        """The token as the vocabulary spells it; `<no token N>` when it has none."""
        return self._texts.get(token_id, f"<no token {token_id}>")

    def decode(self, ids: Sequence[int]) -> str:
        """The tokens with blanks between words, as transformers decodes them."""
        return " ".join(self.token(int(token)) for token in ids).replace(" ##", "").strip()

    def _words(self, text: str) -> Iterator[list[int]]:
        """The ids of each word."""
        ids = self._ids
        for part in self._added.split(text):
            if part.token is not None:
                yield [part.token.id]
                continue
            for surface in self._cut(part.text):
                yield ids[self._lowered(surface)]

    def _cut(self, text: str) -> list[str]:
        text = normalize("NFKC", text) if self.cutting.normalise else text
        try:
            return [node.surface for node in self._tagger(text)]
        except UnicodeEncodeError as error:
            raise DataError(
                "the tokenizer cannot encode a text that is not valid Unicode; give UTF-8"
            ) from error

    def _lowered(self, surface: str) -> str:
        keep = not self.cutting.lower_case or surface in self.cutting.never_lower
        return surface if keep else surface.lower()

    def _pieces_of(self, surface: str) -> list[str]:
        """The pieces of a word in letters; an unknown one is the word itself."""
        known = self._added_ids.get(surface)
        ids = [known] if known is not None else self._ids[self._lowered(surface)]
        unknown = self.special.unk
        return [
            self.token(token).removeprefix("##" if place else "") if token != unknown else surface
            for place, token in enumerate(ids)
        ]

    @cached_property
    def _tagger(self) -> Any:
        return open_mecab(self.dictionary)

    @cached_property
    def _ids(self) -> WordIds:
        (unknown,) = self.special.need("unk")
        return WordIds(SUBWORDS[self.cutting.subword](self.vocabulary, unknown))

    @cached_property
    def _added(self) -> AddedTokens:
        return AddedTokens(self.added)

    @cached_property
    def _added_ids(self) -> dict[str, int]:
        return {token.text: token.id for token in self.added}

    @cached_property
    def _texts(self) -> dict[int, str]:
        return {token: text for text, token in {**self.vocabulary, **self._added_ids}.items()}


def open_mecab(dictionary: Dictionary) -> Any:
    """MeCab with this dictionary; raises `DataError`."""
    try:
        import fugashi
    except ImportError as error:
        raise DataError(
            "cutting Japanese into words needs MeCab (package fugashi), which is not installed; "
            "pip install 'kitae[ja]'"
        ) from error
    try:
        return fugashi.GenericTagger(dictionary.option, quiet=True)
    except RuntimeError as error:
        raise DataError(
            f"MeCab does not start with the dictionary {dictionary.name} ({dictionary.option}); "
            "check its files"
        ) from error


def _as_words(words: list[list[int]]) -> Words:
    ids = np.array([token for word in words for token in word], np.uint32)
    starts = np.zeros(len(ids), np.bool_)
    lengths = np.array([len(word) for word in words if word], np.int64)
    starts[np.cumsum(lengths) - lengths] = True
    return Words(ids, starts)
