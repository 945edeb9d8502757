"""Folders that are there completely or not at all, and one writer at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kitae.errors import KitaeError, StorageError

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
}


@contextmanager
def exclusive(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file `path`; `waiting` is called once when somebody else holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def publishing(folder: Path) -> Iterator[Path]:
    """Give a temporary folder that becomes `folder` at the end; on an exception nothing is left.

    To be used by one writer at a time (`exclusive`): it removes what a killed one left.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        _sync_folders(temporary)
        temporary.rename(folder)
        _sync(folder.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_durably(path: Path, text: str) -> None:
    """Write a file and wait until it is on the disk."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_folders(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        if path.is_dir():
            _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def storage_errors(folder: Path, needed_bytes: Callable[[], int]) -> Iterator[None]:
    """Turn a failed write below `folder` into a `StorageError` that names path, reason, need and room."""
    try:
        yield
    except KitaeError:
        raise
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        free = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
        raise StorageError(
            f"{folder}: cannot be written: {reason}. It needs about {needed_bytes() / 2**20:,.1f} MiB, and "
            f"{free / 2**20:,.1f} MiB are free; make room, or put the cache elsewhere. Nothing was left there"
        ) from error
