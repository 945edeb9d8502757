"""Tells when no rank moves any more, and which one the others wait for.

A rank moves when it begins or ends a collective, when it says so (`touch`), or when it reads or writes
storage: a long save or load needs no marks. Burning processor time is no progress; an endless loop does that.
As long as any rank moves, all of them may be waiting for it, and nothing is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from kitae.launch.heartbeat import Beat

START_S = 120.0
"""Least limit until every rank has begun a collective: importing torch gives no sign of life."""
PATIENCE = 3.0
"""How many times as long ranks may wait for those of other machines."""
MOST_BETWEEN_LOOKS_S = 2.0
"""A longer time between two looks is one in which this process did not run, and perhaps nor did the ranks."""


@dataclass(frozen=True)
class Sight:
    """What is seen of a rank that has not ended."""

    rank: int
    beat: Beat
    state: str
    """Of the process, as psutil calls it: running, sleeping, stopped, disk-sleep."""
    storage_bytes: int
    """Read and written since it began."""

    @property
    def progress(self) -> tuple[int, ...]:
        """Changes when the rank moves."""
        beat = self.beat
        return beat.pid, beat.entered, beat.left, beat.touched, self.storage_bytes


class Watchdog:
    """Is shown all ranks, again and again."""

    def __init__(
        self, timeout_s: float, now: Callable[[], float] = time.monotonic, *, alone: bool = True
    ) -> None:
        self._timeout_s = timeout_s
        self._alone = alone
        """Whether all ranks are on this machine."""
        self._now = now
        self._looked = now()
        self._seen: list[tuple[int, ...]] = []
        self._still_s = 0.0

    def look(self, sights: Sequence[Sight]) -> list[Sight]:
        """The ranks to blame when none has moved for too long; otherwise none."""
        now = self._now()
        passed, self._looked = min(now - self._looked, MOST_BETWEEN_LOOKS_S), now
        seen = [(sight.rank, *sight.progress) for sight in sights]
        self._still_s = self._still_s + passed if seen == self._seen else 0.0
        self._seen = seen
        begun = all(sight.beat.entered for sight in sights)
        limit = self._timeout_s if begun else max(self._timeout_s, START_S)
        if not self._alone and all(sight.beat.waits for sight in sights):
            limit *= PATIENCE  # the machine that has the rank which they wait for is to name it
        return to_blame(sights) if sights and self._still_s >= limit else []


_CANNOT_RUN = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_DISK_SLEEP)


def to_blame(sights: Sequence[Sight]) -> list[Sight]:
    """The ranks that the others wait for.

    Those that have begun the fewest collectives; with equal counts those that cannot run, or those that are
    outside of a collective. When nothing tells them apart, all.
    """
    fewest = min(sight.beat.entered for sight in sights)
    if any(sight.beat.entered > fewest for sight in sights):
        return [sight for sight in sights if sight.beat.entered == fewest]
    stuck = [sight for sight in sights if sight.state in _CANNOT_RUN]
    outside = [sight for sight in sights if not sight.beat.waits]
    return stuck or outside or list(sights)


def storage_bytes(process: psutil.Process) -> int:
    """Bytes that a process has read from and written to storage; 0 where the system does not tell."""
    try:
        counters = process.io_counters()
    except (psutil.Error, OSError, AttributeError):
        return 0
    return int(counters.read_bytes + counters.write_bytes)
