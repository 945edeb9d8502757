"""What the system says of a disk, told so that one can act: where, why, the need, the room, a way out."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kitae.errors import StorageError

_MOVE = "put the run's folder or the cache (KITAE_CACHE)"
_WAYS_OUT = {
    errno.ENOSPC: f"free some space, lower checkpoint.keep, or {_MOVE} on a larger disk",
    errno.EDQUOT: "your quota is used up: free some space or ask for more",
    errno.EROFS: f"the file system is read-only: {_MOVE} elsewhere",
    errno.EACCES: f"allow writing to the folder, or {_MOVE} elsewhere",
    errno.EPERM: f"allow writing to the folder, or {_MOVE} elsewhere",
    errno.EIO: f"the device fails: {_MOVE} on another disk",
}


@contextmanager
def storage_errors(path: Path, needed_bytes: int | Callable[[], int] = 0) -> Iterator[None]:
    """Turn the system's word on a disk into a StorageError naming `path`, the bytes needed and those free.

    A need that is only known later is a function; 0 is one that nobody knows.
    """
    try:
        yield
    except (StorageError, BrokenPipeError):  # no disk breaks a pipe: it is the reader of what is said
        raise
    except OSError as error:
        needed = needed_bytes() if callable(needed_bytes) else needed_bytes
        raise _storage_error(path, needed, error) from error


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


def _storage_error(path: Path, needed_bytes: int, error: OSError) -> StorageError:
    reason = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
    needed = f"needed are {needed_bytes:,} bytes, " if needed_bytes else ""
    free = free_bytes(path)
    shown = "unknown" if free is None else f"{free:,} bytes"
    way_out = _WAYS_OUT.get(error.errno or 0, "check that the folder is there and can be written to")
    return StorageError(f"cannot save to {path}: {reason}; {needed}free are {shown}; {way_out}")
