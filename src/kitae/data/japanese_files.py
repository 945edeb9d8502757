"""The files of a `BertJapaneseTokenizer`: how it cuts, its dictionary, its vocabulary and added tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import unidata_version

from kitae.data.added_tokens import AddedToken, added_token
from kitae.data.dictionary import Dictionary, Named, choose_dictionary, mecab_kwargs
from kitae.data.special_tokens import ROLES, spelling, tokenizer_settings
from kitae.data.subwords import SUBWORDS
from kitae.data.tokenizer import load_json, tokenizer_fingerprint
from kitae.errors import DataError

CLASS = "BertJapaneseTokenizer"
VOCABULARY = "vocab.txt"


@dataclass(frozen=True)
class Cutting:
    """How a text is cut, as tokenizer_config.json says."""

    subword: str = "wordpiece"
    """A key of `SUBWORDS`."""
    normalise: bool = True
    """NFKC before MeCab."""
    lower_case: bool = False
    never_lower: frozenset[str] = frozenset()
    """Words that stay as they are."""


def is_japanese(folder: Path) -> bool:
    """Whether the folder's tokenizer is a `BertJapaneseTokenizer`."""
    settings = tokenizer_settings(folder)
    name = settings.get("tokenizer_class") or load_json(folder / "config.json").get("tokenizer_class")
    return name == CLASS if name is not None else settings.get("word_tokenizer_type") is not None


def dictionary_of(folder: Path, settings: Mapping[str, Any], wanted: str | None) -> Dictionary:
    """The dictionary of a folder's tokenizer; raises `DataError`."""
    kind = settings.get("word_tokenizer_type", "basic")
    if kind != "mecab":
        raise DataError(
            f"{folder}: words are cut by {kind!r} (word_tokenizer_type), and kitae reads mecab; "
            "name a tokenizer of that kind"
        )
    return choose_dictionary(Named.by(settings.get("mecab_kwargs")), wanted, folder)


def named_dictionary(folder: Path, wanted: str | None) -> dict[str, Any]:
    """What tokenizer_config.json has to say so that transformers cuts words alike; raises `DataError`."""
    settings = tokenizer_settings(folder)
    kwargs = mecab_kwargs(dictionary_of(folder, settings, wanted))
    return {"tokenizer_class": CLASS, "mecab_kwargs": {**(settings.get("mecab_kwargs") or {}), **kwargs}}


def japanese_fingerprint(folder: Path, dictionary: Dictionary) -> str:
    """Hash of all that the ids of a text depend on."""
    parts = (tokenizer_fingerprint(folder), dictionary.identity, unidata_version)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def read_vocabulary(path: Path) -> dict[str, int]:
    """One token a line, its number the id; of equal ones the last counts. Raises `DataError`."""
    try:
        with path.open(encoding="utf-8") as file:
            found = {line.rstrip("\n"): number for number, line in enumerate(file)}
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}; a {CLASS} needs it") from error
    if not found:
        raise DataError(f"{path}: the tokenizer's vocabulary is empty")
    return found


def read_cutting(folder: Path, settings: Mapping[str, Any], added: Sequence[AddedToken]) -> Cutting:
    """How texts are cut, as the settings say; raises `DataError` for what kitae does not read."""
    subword = str(settings.get("subword_tokenizer_type", "wordpiece"))
    whole = settings.get("do_word_tokenize", True) and settings.get("do_subword_tokenize", True)
    if subword not in SUBWORDS or not whole:
        raise DataError(
            f"{folder}: pieces of words are cut by {subword!r} (subword_tokenizer_type), and kitae reads "
            f"{' and '.join(SUBWORDS)}, with do_word_tokenize and do_subword_tokenize true"
        )
    kwargs = settings.get("mecab_kwargs") or {}
    kept = (*(settings.get("never_split") or ()), *(token.text for token in added if token.special))
    return Cutting(
        subword=subword,
        normalise=bool(kwargs.get("normalize_text", True)),
        lower_case=bool(settings.get("do_lower_case", False)),
        never_lower=frozenset(kept),
    )


def read_added(
    folder: Path, settings: Mapping[str, Any], vocabulary: Mapping[str, int]
) -> tuple[AddedToken, ...]:
    """Every token that is looked for in the text: those with a role, and those that the files add."""
    roles = [settings.get(f"{role}_token", text) for role, text in ROLES.items()]
    more = settings.get("additional_special_tokens") or settings.get("extra_special_tokens") or []
    named = [text for token in (*roles, *more) if (text := spelling(token)) is not None]
    found = {text: AddedToken(text, vocabulary[text]) for text in named if text in vocabulary}
    for text, token_id in load_json(folder / "added_tokens.json").items():
        found[text] = AddedToken(text, int(token_id), special=text in named)
    for token_id, entry in (settings.get("added_tokens_decoder") or {}).items():
        found[entry["content"]] = added_token(entry["content"], int(token_id), entry)
    return tuple(found.values())
