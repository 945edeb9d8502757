"""Small files that must never be half-written, and the hash that stages are keyed by."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kitae.errors import StorageError


def write_text(path: Path, text: str) -> None:
    """Replace a file as a whole: a reader sees the old text or the new one. Raises `StorageError`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StorageError(f"cannot write {path} ({len(text)} bytes): {error.strerror}") from error


def write_json(path: Path, value: object) -> None:
    """Replace a JSON file as a whole."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty when there is none or it is broken."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def key_of(parts: Mapping[str, object]) -> str:
    """Key of a stage: a hash of all that it reads."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
