"""Hashes of files, streamed, and remembered by path, size, time of change and inode."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kitae.errors import DataError
from kitae.storage.files import file_sha256

# A file that changed this shortly before it was hashed may change again within one tick of its clock.
SETTLED_S = 2.0


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def file_identity(path: Path) -> list[int]:
    """Size, time of change in ns, and inode: what changes when a file does. Raises `DataError`."""
    with _readable(path):
        stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


class HashCache:
    """SHA-256 of files; with a folder, one small file there remembers each hash."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def sha256(self, path: Path) -> str:
        """Hash of the file, from memory when the file has not changed. Raises `DataError`."""
        path = path.resolve()
        with _readable(path):
            return file_sha256(path) if self._folder is None else self._remembered(path, self._folder)

    def _remembered(self, path: Path, folder: Path) -> str:
        note = folder / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.json"
        identity = file_identity(path)
        known = _recall(note)
        if known.get("identity") == identity:
            return str(known["sha256"])
        digest = file_sha256(path)
        if identity[1] < (time.time() - SETTLED_S) * 1e9 and file_identity(path) == identity:
            _remember(note, {"path": str(path), "identity": identity, "sha256": digest})
        return digest


def _recall(note: Path) -> dict[str, object]:
    try:
        known = json.loads(note.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _remember(note: Path, content: dict[str, object]) -> None:
    # Forgetting costs a second hash, so a full or read-only disk is no error here.
    temporary = note.with_suffix(f".{os.getpid()}.tmp")
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(content), "utf-8")
        temporary.replace(note)
    except OSError:
        temporary.unlink(missing_ok=True)
