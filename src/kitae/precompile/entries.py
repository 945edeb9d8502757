"""One entry of a compiler's cache: the artefact of one graph, or what is there instead of it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

State = Literal["done", "failed", "locked", "half-written", "empty"]
"""done: an artefact that a training takes; failed: remembered as not compilable, and never tried again
("poisoned"); locked: compiled now, or left so; half-written: parts of an artefact; empty: a graph alone."""
STATES: tuple[State, ...] = ("done", "failed", "locked", "half-written", "empty")
Holder = Literal["alive", "gone", "unknown"]


@dataclass(frozen=True)
class Lock:
    """A file that keeps other processes from compiling the same graph."""

    path: Path
    age_s: float
    holder: Holder
    """Whether the process that made it lives; unknown where nobody can tell."""
    process: int | None = None


@dataclass(frozen=True)
class Entry:
    """What a cache has for one graph."""

    cache: str
    """Kind of the cache, as `caches.CACHES` calls it."""
    name: str
    """Name of its folder or file: the key of the graph."""
    path: Path
    state: State
    size_bytes: int
    modified: float
    """Seconds since 1970."""
    version: str = ""
    """Compiler that made it, where the cache tells."""
    why: str = ""
    """First line of the compiler's error, of a failed one."""
    locks: tuple[Lock, ...] = ()

    @property
    def graph(self) -> str:
        """Its part of the key that stands for the graph."""
        return self.name.partition("+")[0]

    @property
    def flags(self) -> str:
        """Its part of the key that stands for the compiler's flags; empty where there is none."""
        return self.name.partition("+")[2]

    @property
    def age_s(self) -> float:
        """Seconds since something in it was written."""
        return max(0.0, time.time() - self.modified)

    @property
    def label(self) -> str:
        """Version and name, as a person can find it again."""
        return f"{self.version}/{self.name}" if self.version else self.name


def size_and_time(files: Iterable[Path]) -> tuple[int, float]:
    """Bytes of files, and when the youngest was written; those that vanish meanwhile are left out."""
    size, latest = 0, 0.0
    for file in files:
        try:
            stat = file.stat()
        except OSError:
            continue
        size, latest = size + stat.st_size, max(latest, stat.st_mtime)
    return size, latest
