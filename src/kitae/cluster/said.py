"""What a check of an account answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "unknown", "wrong"]


@dataclass(frozen=True)
class Answer:
    """One thing that was looked at."""

    verdict: Verdict
    text: str
