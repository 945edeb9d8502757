"""A rank's signs of life, in a small file that it shares with the process that watches it.

Layout: five native int64 (pid, 1 once it can be asked for its stack, collectives entered, left, touches),
then UTF-8 text padded with zeros. All bytes are there from the start, so that a full disk changes nothing.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from itertools import count
from pathlib import Path

_PID, _READY, _ENTERED, _LEFT, _TOUCHED = range(5)
_TEXT = 5 * 8
_SIZE = 256


@dataclass(frozen=True)
class Beat:
    """A heartbeat at one moment."""

    pid: int
    """0 before the process has begun."""
    ready: bool
    """Whether SIGUSR2 makes it write its stack."""
    entered: int
    """Collectives begun."""
    left: int
    """Collectives whose result came."""
    touched: int
    where: str
    """What it was doing when it last said so."""

    @property
    def waits(self) -> bool:
        """Whether it is inside a collective."""
        return self.entered > self.left


class Heartbeat:
    """The rank's side: an observer of its collectives (`backend.group.Observer`)."""

    def __init__(self, path: Path) -> None:
        self._memory = _map(path)
        self._numbers = memoryview(self._memory)[:_TEXT].cast("q")
        # A counter's next() is one step for all threads; reading, adding and writing would not be.
        self._entered, self._left, self._touched = count(1), count(1), count(1)
        self._numbers[_PID] = os.getpid()

    def ready(self) -> None:
        """From now on SIGUSR2 is answered."""
        self._numbers[_READY] = 1

    def enter(self) -> None:
        """A collective begins."""
        self._numbers[_ENTERED] = next(self._entered)

    def leave(self) -> None:
        """Its result is there."""
        self._numbers[_LEFT] = next(self._left)

    def touch(self, where: str) -> None:
        """Say that work goes on, and which: long work without collectives has to, now and then."""
        text = where.encode()[: _SIZE - _TEXT - 1]
        self._memory[_TEXT:_SIZE] = text.ljust(_SIZE - _TEXT, b"\0")
        self._numbers[_TOUCHED] = next(self._touched)


class HeartbeatReader:
    """The watching side."""

    def __init__(self, path: Path) -> None:
        self._memory = _map(path)
        self._numbers = memoryview(self._memory)[:_TEXT].cast("q")

    def read(self) -> Beat:
        """The heartbeat now."""
        pid, ready, entered, left, touched = self._numbers.tolist()
        text = self._memory[_TEXT:_SIZE].split(b"\0", 1)[0]
        return Beat(pid, bool(ready), entered, left, touched, text.decode(errors="replace"))


def make_heartbeat(path: Path) -> None:
    """Lay the file down, for a rank that has not begun."""
    path.write_bytes(bytes(_SIZE))


def _map(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), _SIZE)
