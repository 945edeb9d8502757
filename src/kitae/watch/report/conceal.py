"""Secrets in texts that others wrote (recipes, logs, samples): told to be there, never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "‹hidden›"
_KEYS = r"TOKEN(?!IZ|S\b|S_)|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|CREDENTIALS?"
_NAME = rf"[A-Za-z0-9_]{{0,40}}(?:{_KEYS})[A-Za-z0-9_]{{0,40}}"
_WORDS = r"password|passwd|api[_-]?key|(?:secret[_-]?)?access[_-]?key|auth[_-]?token|access[_-]?token"
_PATTERNS = (
    # What tokens of known services look like, wherever they stand.
    (re.compile(r"\bhf_[A-Za-z0-9]{16,}"), HIDDEN),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), HIDDEN),
    (
        re.compile(
            r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,})"
        ),
        HIDDEN,
    ),
    (re.compile(r"\b(?:sk|pk)-[A-Za-z0-9_-]{20,}"), HIDDEN),
    (re.compile(r"(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{12,}"), rf"\1\2{HIDDEN}"),
    # Addresses with a password, and those of webhooks, whose path is the secret.
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,20}://)[^\s/@:]{0,200}:[^\s/@]{1,400}@"), rf"\1{HIDDEN}@"),
    (
        re.compile(r"(?i)\b(https?://[^\s/\"']{0,200}(?:hooks?|discord)[^\s/\"']{0,200})/[^\s\"']+"),
        rf"\1/{HIDDEN}",
    ),
    (re.compile(r"(?i)\b(https?://[^\s\"'?]{0,400}/(?:web)?hooks?)/[^\s\"']+"), rf"\1/{HIDDEN}"),
    (
        re.compile(r"(?i)([?&](?:[\w-]{0,40}(?:token|key|secret|signature|password|sig))=)[^\s&\"']+"),
        rf"\1{HIDDEN}",
    ),
    (
        re.compile(r"(?i)\b(webhook[\"']?\s*[:=]\s*[\"']?https?://[^\s/\"']{1,200})/[^\s\"']+"),
        rf"\1/{HIDDEN}",
    ),
    # Values that are named so.
    (re.compile(rf"\b({_NAME})(\s*=\s*)(?:\"[^\"]*\"|'[^']*'|[^\s\"']+)"), rf"\1\2{HIDDEN}"),
    (
        re.compile(rf"(?i)\b([\w-]{{0,40}}(?:{_WORDS}))([\"']?\s*[:=]\s*)(?:\"[^\"]*\"|'[^']*'|[^\s\"',]+)"),
        rf"\1\2{HIDDEN}",
    ),
    (re.compile(r"(?i)(--(?:[a-z-]{0,40}(?:token|password|secret|api-key)))([ =])\S+"), rf"\1\2{HIDDEN}"),
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S),
        HIDDEN,
    ),
)
_OWN_NAME = re.compile(_NAME)
_SECRET_KEY = re.compile(r"(?i)(?:^|[._-])(?:webhook|token|password|secret|api_key)$")
_LEAST = 8
"""Values of variables that are shorter are no secrets, and would be found everywhere."""


def holds_secret(key: str) -> bool:
    """Whether a key of a recipe, by its dotted path, is one whose value is nobody's business."""
    return _SECRET_KEY.search(key) is not None


def own_secrets(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Values of this process' variables that are named like secrets, the longest first."""
    found = {
        value for name, value in environment.items() if _OWN_NAME.fullmatch(name) and len(value) >= _LEAST
    }
    return tuple(sorted(found, key=len, reverse=True))


class Concealer:
    """Takes secrets out of texts."""

    def __init__(self, secrets: tuple[str, ...] | None = None) -> None:
        self._secrets = own_secrets() if secrets is None else secrets

    def __call__(self, text: str) -> str:
        """The text, with a mark in place of each secret."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        for pattern, by in _PATTERNS:
            text = pattern.sub(by, text)
        return text

    def within(self, value: Any) -> Any:
        """The same of all texts in a nested value; names of mappings, too."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {self(str(name)): self.within(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.within(one) for one in value]
        return value
