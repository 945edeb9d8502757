"""Getting bytes to the disk so that a reader finds all of them or none, whenever the writer dies.

What is new is written under a temporary name, synced, renamed, and the folder that holds the name is
synced; after that a power cut cannot take it back. Temporary names (`.tmp-`, `.old-`, `.trash-`, then the
final name, process and a random part) lie beside the final ones, so that the rename stays inside one file
system.

Files are hashed while they are written. sha256 ran at 1.9 GB/s here (a CPU with SHA instructions, OpenSSL
3.0), blake2b at 1.3 GB/s, so sha256 it is, which `sha256sum` can check too.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from kitae.checkpoint.manifest import StoredFile
from kitae.errors import StorageError

_LEFTOVER = re.compile(r"\.(tmp|old|trash)-(.+)-\d+-[0-9a-f]{8}")
_WAYS_OUT = {
    errno.ENOSPC: "free some space, lower checkpoint.keep, or put the run's folder on a larger disk",
    errno.EDQUOT: "your quota is used up: free some space or ask for more",
    errno.EROFS: "the file system is read-only: put the run's folder elsewhere",
    errno.EACCES: "allow writing to the folder, or put the run's folder elsewhere",
    errno.EPERM: "allow writing to the folder, or put the run's folder elsewhere",
    errno.EIO: "the device fails: put the run's folder on another disk",
}


class HashedFile:
    """A new file, hashed by a second thread while this one writes; `close` syncs it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=0)
        self._digest = hashlib.sha256()
        self._hasher = ThreadPoolExecutor(1)
        self._size_bytes = 0

    def write(self, data: memoryview) -> None:
        """Append bytes, which may change again when this returns."""
        hashing = self._hasher.submit(self._digest.update, data)
        self._size_bytes += len(data)
        try:
            while len(data):
                data = data[self._file.write(data) :]
        finally:
            hashing.result()

    def close(self) -> StoredFile:
        """Wait until the file is on the disk; its size and hash."""
        try:
            os.fsync(self._file.fileno())
        finally:
            self.discard()
        return StoredFile(self._size_bytes, self._digest.hexdigest())

    def discard(self) -> None:
        """Close without waiting for the disk."""
        self._hasher.shutdown()
        self._file.close()


@contextmanager
def storage_errors(path: Path, needed_bytes: int) -> Iterator[None]:
    """Turn the system's word on a disk into a StorageError naming `path`, the bytes needed and those free."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise _storage_error(path, needed_bytes, error) from error


def check_space(path: Path, needed_bytes: int) -> None:
    """Raise StorageError when less is free where `path` lies; a quota is not seen and shows when writing."""
    free = free_bytes(path)
    if free is not None and free < needed_bytes:
        raise _storage_error(path, needed_bytes, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def free_bytes(path: Path) -> int | None:
    """Bytes that may still be written where `path` lies, or None when the system does not say."""
    for folder in (path, *path.absolute().parents):
        with suppress(OSError):
            return shutil.disk_usage(folder).free
    return None


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file and wait until it is on the disk."""
    file = HashedFile(path)
    try:
        file.write(memoryview(content))
        file.close()
    finally:
        file.discard()


def replace_file(path: Path, content: bytes) -> None:
    """Give `path` a new content; a reader sees the old or the new one, never a part."""
    temporary = aside_name(path, "tmp")
    try:
        write_synced(temporary, content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def temporary_folder(final: Path) -> Iterator[Path]:
    """A folder beside `final`, gone again when the block fails."""
    folder = aside_name(final, "tmp")
    folder.mkdir()
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def publish_folder(temporary: Path, final: Path) -> None:
    """Give a finished folder its name; one that had the name goes once the new one is safe."""
    sync_folder(temporary)
    old = aside_name(final, "old")
    replaces = final.exists()
    if replaces:
        final.rename(old)
    try:
        temporary.rename(final)
    except OSError:
        if replaces:
            old.rename(final)
        raise
    sync_folder(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder in such a way that it is never seen in part under its name."""
    trash = aside_name(folder, "trash")
    with suppress(FileNotFoundError):
        folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)


def sweep(parent: Path) -> list[str]:
    """Remove what dead writers left in `parent`, restore what they had set aside; what was done."""
    return [
        _sweep_one(path, match)
        for path in sorted(parent.iterdir())
        if (match := _LEFTOVER.fullmatch(path.name))
    ]


def set_aside(final: Path) -> Path | None:
    """The folder that had the name `final` when a writer died between the two renames of a replacement."""
    found = (path for path in final.parent.glob(f".old-{final.name}-*") if _LEFTOVER.fullmatch(path.name))
    return next(found, None)


def aside_name(final: Path, purpose: str) -> Path:
    """A fresh hidden name beside `final`."""
    return final.with_name(f".{purpose}-{final.name}-{os.getpid()}-{secrets.token_hex(4)}")


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def exclusive(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the folder's lock, which the system drops when the holder dies; yields whether it is held.

    It is not when `wait` is off and somebody else holds it, or when the file system has no locks.
    """
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield _locked(descriptor, wait)
    finally:
        os.close(descriptor)


def _locked(descriptor: int, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _sweep_one(path: Path, match: re.Match[str]) -> str:
    final = path.with_name(match[2])
    if match[1] == "old" and not final.exists():
        path.rename(final)
        return f"restored {final}, which an interrupted save had set aside"
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    return f"removed {path}, left by an interrupted save"


def _storage_error(path: Path, needed_bytes: int, error: OSError) -> StorageError:
    free = free_bytes(path)
    shown = "unknown" if free is None else f"{free:,} bytes"
    way_out = _WAYS_OUT.get(error.errno or 0, "check that the folder is there and can be written to")
    reason = (
        f"{error.strerror or error} ({error.filename})" if error.filename else f"{error.strerror or error}"
    )
    return StorageError(
        f"cannot save to {path}: {reason}; needed are {needed_bytes:,} bytes, free are {shown}; {way_out}"
    )
