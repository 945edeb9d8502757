"""Special tokens of a tokenizer's folder: what each is for, and how its files spell it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kitae.data.tokenizer import SETTINGS_FILES, load_json
from kitae.errors import DataError

ROLES = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]", "unk": "[UNK]"}
"""What a special token is for, and how it is spelt where a tokenizer's files do not say."""


@dataclass(frozen=True)
class SpecialIds:
    """Ids that stand for no text; None for a token that the vocabulary lacks."""

    cls: int | None
    sep: int | None
    pad: int | None
    mask: int | None
    unk: int | None
    all: frozenset[int]
    """Those five and every other special token of the vocabulary."""

    def need(self, *roles: str) -> tuple[int, ...]:
        """The ids of these roles (`cls`, `sep`, ..), in this order; raises `DataError` for one that lacks."""
        missing = [f"{role} ({ROLES[role]})" for role in roles if getattr(self, role) is None]
        if missing:
            raise DataError(
                f"the tokenizer lacks a token for: {', '.join(missing)}; name another tokenizer under "
                "data.tokenizer, or add what is missing to its vocabulary"
            )
        return tuple(getattr(self, role) for role in roles)


def special_ids_of(settings: dict[str, Any], vocabulary: dict[str, int], others: Sequence[int]) -> SpecialIds:
    """The special tokens by a tokenizer's settings; a role that they do not name is spelt as BERT does.

    `others` are ids of further special tokens.
    """
    ids = {role: _role_id(settings, vocabulary, role) for role in ROLES}
    named = {token for token in ids.values() if token is not None}
    return SpecialIds(**ids, all=frozenset(named | set(others)))


def tokenizer_settings(folder: Path) -> dict[str, Any]:
    """What the tokenizer's JSON files say, tokenizer_config.json first; raises `DataError`."""
    merged: dict[str, Any] = {}
    for name in SETTINGS_FILES:
        merged = {**load_json(folder / name), **merged}
    return merged


def spelling(token: Any) -> str | None:
    """A token's text from a settings file: a string, or an object with `content`; None for null."""
    value = token.get("content") if isinstance(token, dict) else token
    return value if isinstance(value, str) else None


def _role_id(settings: dict[str, Any], vocabulary: dict[str, int], role: str) -> int | None:
    named = settings.get(f"{role}_token", ROLES[role])
    return vocabulary.get(spelling(named) or "")
