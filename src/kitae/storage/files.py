"""Single files: written durably, replaced as a whole, hashed."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kitae.storage.disk import storage_errors

_SYNCS = 16


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file and wait until it is on the disk; its name is safe once its folder is synced."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Give `path` a new content, durably; a reader sees the old or the new one. Raises StorageError."""
    temporary = aside_name(path, "tmp")
    with storage_errors(path, len(content)):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_synced(temporary, content)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync(path.parent)


def show_file(path: Path, content: bytes) -> None:
    """Give `path` a new content as a whole, not durably: for what soon has a newer one. Raises OSError."""
    temporary = aside_name(path, "tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(paths: Iterable[Path]) -> None:
    """The same of many, side by side: one after the other, each would wait for the disk alone."""
    with ThreadPoolExecutor(_SYNCS) as threads:
        list(threads.map(sync, paths))


def aside_name(final: Path, purpose: str) -> Path:
    """A fresh hidden name beside `final`, so that a rename stays inside one file system.

    It is `.<purpose>-<final name>-<process>-<random>`; `folders.sweep` knows what a dead process left by it.
    """
    return final.with_name(f".{purpose}-{final.name}-{os.getpid()}-{secrets.token_hex(4)}")


def file_sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes, read in small pieces; OSError when it cannot be read."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(1 << 20))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
    return digest.hexdigest()
