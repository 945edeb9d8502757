"""One writer at a time, among all processes of a machine."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path, *, wait: bool = True, waiting: Callable[[], None] | None = None) -> Iterator[bool]:
    """Hold the lock file `path`, which the system drops when the holder dies; yields whether it is held.

    `waiting` is called once when somebody else holds it. It is not held when `wait` is off and somebody else
    does, or when the file system has no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        held = _locked(descriptor, fcntl.LOCK_NB)
        if wait and held is None:
            if waiting is not None:
                waiting()
            held = _locked(descriptor)
        yield bool(held)
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool | None:
    """Whether somebody holds the lock file; None when it is not there, or nobody can tell."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        held = _locked(descriptor, fcntl.LOCK_NB)
        return None if held is False else held is None
    finally:
        os.close(descriptor)


def _locked(descriptor: int, how: int = 0) -> bool | None:
    """Whether it worked; None when somebody else holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | how)
    except BlockingIOError:
        return None
    except OSError:
        return False
    return True
