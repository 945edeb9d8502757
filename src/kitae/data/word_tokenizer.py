"""Tokenizers as BERT uses them: ids, where words begin, and the special tokens around a text.

Such a tokenizer can be pickled, so that worker processes get a copy. T tokens of a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kitae.data.japanese_files import dictionary_of, is_japanese, japanese_fingerprint, named_dictionary
from kitae.data.special_tokens import SpecialIds, special_ids_of, tokenizer_settings
from kitae.data.tokenizer import Ids, TextTokenizer, encodings_of, load_json, tokenizer_fingerprint
from kitae.errors import DataError


class Words(NamedTuple):
    """The tokens of a text."""

    ids: Ids
    """[T] uint32, nothing added."""
    starts: NDArray[np.bool_]
    """[T] whether a token begins a word; the first one always does."""


class WordTokenizer(Protocol):
    """What turns texts into ids for masked-language training and classification."""

    @property
    def vocab_size(self) -> int:
        """Largest id plus one, added tokens included."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hash of all that the ids of a text depend on."""
        ...

    @property
    def special(self) -> SpecialIds:
        """The special tokens."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text (uint32), nothing added; raises `DataError`."""
        ...

    def words_batch(self, texts: Sequence[str]) -> list[Words]:
        """Ids of each text and where its words begin; raises `DataError`."""
        ...

    def token(self, token_id: int) -> str:
        """The token as the vocabulary spells it; `<no token N>` when it has none."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, special tokens included."""
        ...


@dataclass(frozen=True)
class PieceTokenizer:
    """A tokenizer of the `tokenizers` library: its words are those of its pre-tokenizer."""

    text: TextTokenizer
    special: SpecialIds

    @property
    def vocab_size(self) -> int:
        """Largest id plus one, added tokens included."""
        return self.text.vocab_size

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the tokenizer's files."""
        return self.text.fingerprint

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text (uint32), nothing added."""
        return self.text.encode_batch(texts)

    def words_batch(self, texts: Sequence[str]) -> list[Words]:
        """Ids of each text and where its words begin."""
        return [
            Words(np.array(encoding.ids, np.uint32), _changes(encoding.word_ids))
            for encoding in encodings_of(self.text.backend, texts, with_words=True)
        ]

    def token(self, token_id: int) -> str:
        """The token as the vocabulary spells it; `<no token N>` when it has none."""
        return self.text.token(token_id)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, special tokens included."""
        return self.text.decode(ids)


def load_tokenizer(folder: Path, dictionary: str | None = None) -> WordTokenizer:
    """The tokenizer of a folder. `dictionary` is the recipe's; None takes the one that the files name.

    Raises `DataError` for files that cannot be used, and for a dictionary where none is used.
    """
    # Only here: that module reads this one.
    from kitae.data.japanese import JapaneseTokenizer

    if is_japanese(folder):
        return JapaneseTokenizer.load(folder, dictionary)
    if dictionary is not None:
        raise DataError(
            f"{folder}: data.tokenizer.dictionary is {dictionary}, but this tokenizer uses no dictionary; "
            "take it out"
        )
    text = TextTokenizer.load(folder)
    return PieceTokenizer(text, _special_of(folder, text))


def fingerprint_of(folder: Path, dictionary: str | None = None) -> str:
    """`fingerprint` of a folder's tokenizer, without loading it; `dictionary` as for `load_tokenizer`.

    Raises `DataError`.
    """
    if not is_japanese(folder):
        return tokenizer_fingerprint(folder)
    return japanese_fingerprint(folder, dictionary_of(folder, tokenizer_settings(folder), dictionary))


def settled_settings(folder: Path, dictionary: str | None = None) -> dict[str, Any] | None:
    """A tokenizer_config.json for a copy of the folder that names the dictionary; None where it may stay.

    Raises `DataError`.
    """
    if not is_japanese(folder):
        return None
    stated = load_json(folder / "tokenizer_config.json")
    settled = {**stated, **named_dictionary(folder, dictionary)}
    return None if settled == stated else settled


def _special_of(folder: Path, text: TextTokenizer) -> SpecialIds:
    added = text.backend.get_added_tokens_decoder()
    others = [int(token_id) for token_id, token in added.items() if token.special]
    return special_ids_of(tokenizer_settings(folder), text.backend.get_vocab(with_added_tokens=True), others)


def _changes(word_ids: Sequence[int | None]) -> NDArray[np.bool_]:
    """[T] true where the word is another than before, or none is known."""
    return np.array(
        [word is None or place == 0 or word != word_ids[place - 1] for place, word in enumerate(word_ids)],
        np.bool_,
    )
