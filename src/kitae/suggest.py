"""The nearest known names to one that was mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that look like `name`, the nearest first."""
    return difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean a or b?` or a full stop, to end the sentence that says that `name` is not known."""
    names = nearest(name, known)
    return f"; did you mean {' or '.join(names)}?" if names else "."
