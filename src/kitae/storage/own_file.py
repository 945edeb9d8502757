"""Whether a file that a person names may be replaced: only what kitae wrote there itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kitae.errors import RecipeError

_HEAD, _TAIL = 4096, 64
"""Bytes of a file in which it says what it is."""


def refuse_other_file(path: Path, is_own: Callable[[bytes, bytes], bool], kind: str) -> None:
    """Raise `RecipeError` where something is in the way that `is_own`, given its two ends, denies.

    `kind` is what kitae writes there, such as "report". A device or a pipe is never replaced, nor read.
    """
    if path.is_dir():
        raise RecipeError(f"--to: {path} is a folder; name a file")
    if not path.exists():
        return
    with suppress(OSError):
        if path.is_file() and is_own(*_ends(path)):
            return
    raise RecipeError(f"{path} is there already, and is no {kind} of kitae's; name another file with --to")


def _ends(path: Path) -> tuple[bytes, bytes]:
    with path.open("rb") as file:
        head = file.read(_HEAD)
        file.seek(max(0, path.stat().st_size - _TAIL))
        return head, file.read(_TAIL)
