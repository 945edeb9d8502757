"""Where scenes come from: the folder of a run."""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

from kitae.errors import ClusterError
from kitae.launch.slurm.commands import Slurm
from kitae.launch.slurm.parse import JobState
from kitae.watch.alarms import Alarm, read_alarms
from kitae.watch.facts import is_run
from kitae.watch.log_view import LOOK_AT_JOBS_S, Growing, log_path, ranks_with_logs
from kitae.watch.look import look_at
from kitae.watch.outlook import outlook_of
from kitae.watch.reading import Readings
from kitae.watch.samples import Sample, latest_samples, lines_file
from kitae.watch.status import Status
from kitae.watch.tail import last_records, lines_from_end
from kitae.watch.top.scene import Checkpoint, Node, Scene, Training

LOG_LINES = 1000
"""That can be looked back at."""
PAST = 120
"""Samples that are remembered of each node."""
_MOST_BYTES = 1 << 23
"""Of metrics, in one look: of a very long run the curves come bit by bit, the rest is there at once."""
_STEP = re.compile(r"step-(\d{8,})")
_CONTROL = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
"""What would move the cursor, or worse, if it were printed."""
_BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError)
"""What reading files meets that are not as kitae writes them."""

Part = TypeVar("Part")


class Source(Protocol):
    """Something that can be looked at again and again."""

    def look(self) -> Scene:
        """How it is now."""
        ...

    def turn_to(self, rank: int) -> None:
        """Show the log of another rank."""
        ...

    def close(self) -> None:
        """No more looks."""
        ...


class PatientSlurm(Slurm):
    """Asks the scheduler, which serves many, only now and then; in between it says the same."""

    def __init__(self, inner: Slurm, now: Callable[[], float] = time.monotonic) -> None:
        self._inner, self._now = inner, now
        self._asked: float | None = None
        self._answer: Mapping[int, JobState] | ClusterError = {}

    def jobs(self, numbers: Sequence[int]) -> dict[int, JobState]:
        """Those that are known of these. Raises `ClusterError`."""
        if self._asked is None or self._now() - self._asked >= LOOK_AT_JOBS_S:
            self._asked = self._now()
            try:
                self._answer = self._inner.jobs(numbers)
            except ClusterError as error:
                self._answer = error
        if isinstance(self._answer, ClusterError):
            raise self._answer
        return dict(self._answer)


class RunSource:
    """A run, live or finished, seen through its folder."""

    def __init__(self, run: Path, slurm: Slurm | None = None, now: Callable[[], float] = time.time) -> None:
        self._run, self._now = run, now
        self._slurm = PatientSlurm(slurm or Slurm())
        self._readings = Readings(run)
        self._past = Past(run)
        self._training = Training()
        self._last = Scene(title=run.name, now=now())
        self._checkpoints = Checkpoints(run)
        self.turn_to(0)

    def turn_to(self, rank: int) -> None:
        """Show the log of another rank."""
        self._rank = rank
        self._log = Growing(log_path(self._run, rank), LOG_LINES)
        self._lines: deque[str] = deque(maxlen=LOG_LINES)
        self._count = 0

    def close(self) -> None:
        """Nothing is held."""

    def look(self) -> Scene:
        """How the run is now; of a folder that is gone, how it was."""
        scene = self._scene([])
        if is_run(self._run):  # asked afterwards: what was read while it went away is no picture of it
            self._last = scene
        else:
            self._last = replace(self._last, now=self._now(), gone=True)
        return self._last

    def _scene(self, notes: list[str]) -> Scene:
        now, run = self._now(), self._run
        status = _part("run.json", self._status, None, notes)
        alarms: Sequence[Alarm] = _part("alarms.json", lambda: read_alarms(run), [], notes)
        samples: Mapping[str, Sample] = _part("devices", lambda: latest_samples(run), {}, notes)
        self._training = _part("metrics.jsonl", self._look_at_training, self._training, notes)
        if status is not None and not status.jobs_known:
            notes.append("Slurm cannot be asked: what is said of jobs is what the folder says")
        return Scene(
            title=run.name,
            now=now,
            status=status,
            outlook=self._last.outlook if status is None else outlook_of(status, now),
            training=self._training,
            nodes=self._past.nodes(samples),
            alarms=tuple(alarms),
            checkpoints=_part("checkpoints", self._checkpoints.look, (), notes),
            log=_part("logs", self._log_lines, (), notes),
            log_count=self._count,
            rank=self._rank,
            ranks_with_logs=tuple(_part("logs", lambda: ranks_with_logs(run), [], notes)),
            notes=tuple(notes),
            read_share=min(1.0, self._readings.read_share),
        )

    def _status(self) -> Status:
        return look_at([self._run], self._slurm, now=self._now)[0]

    def _look_at_training(self) -> Training:
        return Training.of(self._readings) if self._readings.refresh(_MOST_BYTES) else self._training

    def _log_lines(self) -> tuple[str, ...]:
        new = [cleaned(line) for line in self._log.lines()]
        self._lines.extend(new)
        self._count += len(new)
        return tuple(self._lines)


def _part(name: str, read: Callable[[], Part], otherwise: Part, notes: list[str]) -> Part:
    """What a file tells; of a broken one what was known before, with a note: the screen goes on."""
    try:
        return read()
    except _BROKEN as error:
        notes.append(f"{name} cannot be read: {type(error).__name__}: {error}")
        return otherwise


def cleaned(line: str) -> str:
    """A line of a log without what would move the cursor; of one that was written over, the last state."""
    return _CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2].expandtabs(8))


class Past:
    """Remembers how busy nodes were; what a run has recorded of them is where it begins."""

    def __init__(self, run: Path | None = None) -> None:
        self._run = run
        self._past: dict[str, deque[tuple[float, float]]] = {}

    def nodes(self, samples: Mapping[str, Sample]) -> tuple[Node, ...]:
        """Nodes in the order of their names, numbers in them by value."""
        return tuple(self._node(name, samples[name]) for name in sorted(samples, key=natural))

    def _node(self, name: str, sample: Sample) -> Node:
        if name not in self._past:
            self._past[name] = deque(self._recorded(name), maxlen=PAST)
        past, busy = self._past[name], sample.utilisation
        if busy is not None and (not past or past[-1][0] < sample.time):
            past.append((sample.time, busy))
        return Node(name, sample, tuple(value for _, value in past))

    def _recorded(self, name: str) -> list[tuple[float, float]]:
        found: list[tuple[float, float]] = []
        lines = () if self._run is None else lines_from_end(lines_file(self._run, name))
        for line in islice(lines, PAST):
            with suppress(ValueError, AttributeError):
                sample = Sample.from_json(json.loads(line))
                found += [(sample.time, sample.utilisation)] if sample.utilisation is not None else []
        return sorted(found)


def natural(name: str) -> list[tuple[bool, int, str]]:
    """Sorts node-2 before node-10."""
    return [
        (part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", name)
    ]


class Checkpoints:
    """The saves of a run; each is measured once, as it is never written to again."""

    def __init__(self, run: Path) -> None:
        self._store, self._notes = run / "checkpoints", run / "saves.jsonl"
        self._known: dict[str, Checkpoint] = {}

    def look(self) -> tuple[Checkpoint, ...]:
        """Those that are there, by step."""
        with suppress(FileNotFoundError):
            names = [one.name for one in self._store.iterdir() if _STEP.fullmatch(one.name)]
            self._known = {name: self._known.get(name) or self._measured(name) for name in names}
            return tuple(sorted(self._known.values(), key=lambda one: one.step))
        return ()

    def _measured(self, name: str) -> Checkpoint:
        files = [path.stat() for path in (self._store / name).rglob("*") if path.is_file()]
        step = int(name.removeprefix("step-"))
        waits = [one for one in last_records(self._notes, None, 1000) if one.get("step") == step]
        return Checkpoint(
            step=step,
            size_bytes=sum(one.st_size for one in files),
            time=max((one.st_mtime for one in files), default=0.0),
            seconds=waits[-1].get("seconds") if waits else None,
        )
