"""JSON files that are never half-written, and the hash that stages are keyed by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kitae.storage.files import replace_file


def write_json(path: Path, value: object) -> None:
    """Replace a JSON file as a whole; raises `StorageError`."""
    replace_file(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty when there is none or it is broken."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def key_of(parts: Mapping[str, object]) -> str:
    """Key of a stage: a hash of all that it reads."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
