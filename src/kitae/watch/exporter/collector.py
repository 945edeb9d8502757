"""Reads runs when somebody asks, so that what is scraped is how they are then."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kitae.launch.slurm.commands import Slurm
from kitae.watch.exporter.numbers import Numbers
from kitae.watch.exporter.of_node import node_numbers
from kitae.watch.exporter.of_run import numbers_of
from kitae.watch.look import RECENT_S, look_at
from kitae.watch.remote import is_remote
from kitae.watch.status import Status

Tell = Callable[[str], None]
Find = Callable[[], Sequence[Path]]
Wanted = Callable[[Status], bool]


class Once:
    """Tells each line once, however often it is read."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._told = tell, set[str]()

    def __call__(self, line: str) -> None:
        """Tell it, if it is new."""
        if line not in self._told:
            self._told.add(line)
            self._tell(line)


class RunCollector(Collector):
    """Gives the numbers of the runs that `find` names and that are `wanted`; a damaged one costs its own."""

    def __init__(
        self,
        find: Find,
        tell: Tell,
        wanted: Wanted = lambda status: True,
        *,
        slurm: Slurm | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._find, self._tell, self._wanted, self._slurm, self._now = find, Once(tell), wanted, slurm, now
        self._lock = threading.Lock()
        self._most_tokens: dict[tuple[str, ...], float] = {}

    def describe(self) -> list[Metric]:
        """Nothing is known before the first scrape, and none is made for being registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """How the runs are now."""
        with self._lock:
            begun, found, count = time.perf_counter(), Numbers(), 0
            for numbers in self._seen(self._runs()):
                numbers.only_rising("kitae_training_tokens_total", self._most_tokens)
                found.update(numbers)
                count += 1
            found.add("kitae_exporter_runs", count)
            found.add("kitae_exporter_scrape_seconds", time.perf_counter() - begun)
            yield from found.families()

    def _runs(self) -> list[Path]:
        try:
            found = list(self._find())
        except Exception as error:  # the folder of the runs is gone, perhaps for a while
            self._tell(str(error))
            return []
        for path in filter(is_remote, found):
            self._tell(f"{path.name} is on a head node: run kitae metrics there")
        return [path for path in found if not is_remote(path)]

    def _seen(self, runs: Sequence[Path]) -> Iterator[Numbers]:
        names = names_of(runs)
        for path, status in self._statuses(runs):
            if status is None or self._wanted(status):
                yield self._numbers(path, status, names[path])

    def _numbers(self, path: Path, status: Status | None, name: str) -> Numbers:
        try:
            if status is None or status.facts.damaged:
                raise ValueError("its files cannot be understood")
            numbers = numbers_of(status, name, self._now())
            numbers.update(node_numbers(path, name, self._now()))
        except Exception as error:
            numbers = Numbers()
            numbers.add("kitae_run_readable", 0, name)
            if path.exists():  # else it has just been removed
                self._tell(f"{path} cannot be read: {error}")
        return numbers

    def _statuses(self, runs: Sequence[Path]) -> Iterator[tuple[Path, Status | None]]:
        """All at once, as the scheduler is asked; one by one where one of them is damaged."""
        try:
            yield from zip(runs, look_at(runs, self._slurm, self._tell, self._now), strict=True)
        except Exception:
            for path in runs:
                yield path, self._status(path)

    def _status(self, run: Path) -> Status | None:
        try:
            return look_at([run], self._slurm, self._tell, self._now)[0]
        except Exception:
            return None


def names_of(runs: Sequence[Path]) -> dict[Path, str]:
    """What runs are called in the label `run`; by their paths where two folders have one of the same name."""
    counts = Counter(path.name for path in runs)
    return {path: path.name if counts[path.name] == 1 else str(path) for path in runs}


def is_recent(status: Status) -> bool:
    """Whether a run is at work, or ended not long ago."""
    return status.active or (status.sign_age_s or 0.0) < RECENT_S
