"""Disk and hashes, as checkpoints use them."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from kitae.calibrate.clock import timed
from kitae.storage.disk import storage_errors
from kitae.storage.files import sync, write_synced

LARGE, SMALL = 128 << 20, 4096
TRIES = 3


def measure_storage(folder: Path) -> dict[str, float]:
    """Speeds of the disk under a folder, and of SHA-256. Raises `StorageError`."""
    content = os.urandom(1 << 20) * (LARGE >> 20)
    with storage_errors(folder, LARGE):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".calibrate-", dir=folder) as name:
            written = min(_write(Path(name) / f"large-{number}", content) for number in range(TRIES))
            small = min(_write(Path(name) / f"small-{number}", content[:SMALL]) for number in range(5))
            read = min(_read(Path(name) / f"large-{number}") for number in range(TRIES))
    hashed = timed(lambda: hashlib.sha256(content[: 16 << 20]).digest(), budget_s=0.2).best
    return {
        "disk_write_bytes_per_s": LARGE / written,
        "disk_sync_s": small,
        "disk_read_bytes_per_s": LARGE / read,
        "hash_bytes_per_s": (16 << 20) / hashed,
    }


def _write(path: Path, content: bytes) -> float:
    begin = time.perf_counter()
    write_synced(path, content)
    sync(path.parent)
    return time.perf_counter() - begin


def _read(path: Path) -> float:
    begin = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        buffer = memoryview(bytearray(1 << 20))
        while file.readinto(buffer):
            pass
    return time.perf_counter() - begin
