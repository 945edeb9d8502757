"""Tokens that are taken out of a text before it is cut into words, as transformers' Python tokenizers do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class AddedToken:
    """A token that is looked for in the text itself."""

    text: str
    id: int
    special: bool = True
    lstrip: bool = False
    """White space before it goes."""
    rstrip: bool = False
    """White space behind it goes."""
    single_word: bool = False
    """It counts only between blanks."""


class Part(NamedTuple):
    """A piece of text, or an added token."""

    text: str
    token: AddedToken | None = None


class AddedTokens:
    """Cuts a text at added tokens: the leftmost one, and of those the longest."""

    def __init__(self, tokens: Iterable[AddedToken]) -> None:
        self.tokens = tuple(tokens)
        self._by_text = {token.text: token for token in self.tokens}
        longest_first = sorted(self._by_text, key=len, reverse=True)
        # With no token at all, a pattern that matches nowhere.
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def split(self, text: str) -> list[Part]:
        """The parts in their order, none of them empty."""
        parts: list[Part] = []
        place = 0
        for match in self._pattern.finditer(text):
            parts += [Part(text[place : match.start()]), Part(match[0], self._by_text[match[0]])]
            place = match.end()
        parts.append(Part(text[place:]))
        return [part for part in _apply(parts) if part.text]


def _apply(parts: list[Part]) -> list[Part]:
    """Apply what the tokens ask of the text on both sides, from left to right."""
    for place, (_, token) in enumerate(parts):
        if token is None:
            continue
        left, right = parts[place - 1].text, parts[place + 1].text
        if token.rstrip:
            parts[place + 1] = Part(right.lstrip())
        if token.lstrip:
            parts[place - 1] = Part(left.rstrip())
        if token.single_word and left and left[-1] != " ":
            parts[place - 1], parts[place] = Part(left + token.text), Part("")
        elif token.single_word and right and right[0] != " ":
            parts[place + 1], parts[place] = Part(token.text + right), Part("")
    return parts


def added_token(text: str, token_id: int, settings: Mapping[str, Any]) -> AddedToken:
    """An added token by its entry in tokenizer_config.json."""
    flags = {name: bool(settings.get(name, False)) for name in ("lstrip", "rstrip", "single_word")}
    return AddedToken(text, token_id, bool(settings.get("special", True)), **flags)
