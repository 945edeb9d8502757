"""`metrics.jsonl` as series, read on from where the last look ended."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from math import isfinite, nan
from pathlib import Path

from kitae.watch.facts import seconds_since_1970
from kitae.watch.tail import Record

RANKS_KEPT = 1024
"""Of the records of ranks; then every second old one is left out, as each has a time of every rank."""
_BLOCK = 1 << 22


def _column() -> array[float]:
    return array("d")


@dataclass
class Columns:
    """What updates have, [updates] each, in the order of the file; NaN where a line does not tell it."""

    step: array[float] = field(default_factory=_column)
    loss: array[float] = field(default_factory=_column)
    learning_rate: array[float] = field(default_factory=_column)
    grad_norm: array[float] = field(default_factory=_column)
    step_seconds: array[float] = field(default_factory=_column)
    first_step: array[float] = field(default_factory=_column)
    """1 where an attempt warms up."""
    padded_tokens: array[float] = field(default_factory=_column)
    real_tokens: array[float] = field(default_factory=_column)
    target_tokens: array[float] = field(default_factory=_column)
    total_padded_tokens: array[float] = field(default_factory=_column)
    total_real_tokens: array[float] = field(default_factory=_column)
    consumed_samples: array[float] = field(default_factory=_column)
    tokens_per_s: array[float] = field(default_factory=_column)
    real_tokens_per_s: array[float] = field(default_factory=_column)
    tokens_per_s_per_device: array[float] = field(default_factory=_column)
    real_tokens_per_s_per_device: array[float] = field(default_factory=_column)
    utilisation: array[float] = field(default_factory=_column)
    """0 to 1, of the peak."""
    peak_memory_bytes: array[float] = field(default_factory=_column)
    time: array[float] = field(default_factory=_column)
    """When the update ended, in seconds since 1970: the attempt's start and what took time since then."""

    def __len__(self) -> int:
        return len(self.step)

    def add(self, record: Record) -> None:
        """Append what a line tells."""
        for name in _NAMES:
            getattr(self, name).append(_number(record.get(name)))

    def last(self, name: str) -> float | None:
        """The newest value of a column; None where there is none."""
        values: array[float] = getattr(self, name)
        return values[-1] if len(values) and isfinite(values[-1]) else None


_NAMES = tuple(one.name for one in fields(Columns))


class Readings:
    """All that the metrics of a run tell. A file that is not there yet, or no more, is an empty one."""

    def __init__(self, run: Path) -> None:
        self.path = run / "metrics.jsonl"
        self._begin()

    def _begin(self) -> None:
        self.starts: list[Record] = []
        self.train = Columns()
        self.evaluations: list[Record] = []
        """Held-out losses; `index` is the number of updates in `train` before it."""
        self.ranks: list[Record] = []
        self.phases: list[tuple[str, int]] = []
        """Name, and index of the first update in `train`."""
        self._position = 0
        self._rest = b""
        self._file: tuple[int, int] | None = None
        self._clock = nan
        self._size = 0

    @property
    def read_share(self) -> float:
        """How much of the file has been read, 0 to 1, where it is read in parts."""
        return self._position / self._size if self._size else 1.0

    def refresh(self, most_bytes: int | None = None) -> bool:
        """Read what was appended since, or all of a file that was replaced; whether anything is new.

        With `most_bytes` it ends after so many, and the next call goes on there.
        """
        try:
            stat = self.path.stat()
        except OSError:
            there = self._file is not None
            self._begin()
            return there
        identity = (stat.st_dev, stat.st_ino)
        replaced = self._file is not None and (identity != self._file or stat.st_size < self._position)
        if replaced:  # a run that resumes cuts off what its checkpoint does not have
            self._begin()
        self._file, self._size = identity, stat.st_size
        return self._read(most_bytes) or replaced

    def _read(self, most_bytes: int | None) -> bool:
        any_new = False
        for line in self._new_lines(most_bytes):
            record = _record(line)
            take = self._TAKERS.get(str(record.get("kind")))
            if take is not None:
                take(self, record)
                any_new = True
        return any_new

    def _new_lines(self, most_bytes: int | None) -> Iterator[bytes]:
        end = None if most_bytes is None else self._position + most_bytes
        try:
            file = self.path.open("rb")
        except OSError:
            return
        with file:
            file.seek(self._position)
            while end is None or self._position < end:
                block = file.read(_BLOCK if end is None else min(_BLOCK, end - self._position))
                if not block:
                    return
                self._position += len(block)
                *lines, self._rest = (self._rest + block).split(b"\n")
                yield from lines

    def _start(self, record: Record) -> None:
        self.starts.append(record)
        self._clock = seconds_since_1970(record["time"]) if isinstance(record.get("time"), str) else nan

    def _update(self, record: Record) -> None:
        phase = record.get("phase")
        if phase is not None and (not self.phases or self.phases[-1][0] != phase):
            self.phases.append((str(phase), len(self.train)))
        self._clock += _number(record.get("step_seconds"))
        self.train.add({"time": self._clock, **record})

    def _evaluation(self, record: Record) -> None:
        self._clock += _number(record.get("seconds"), 0.0)
        self.evaluations.append({"index": len(self.train), "time": self._clock, **record})

    def _of_ranks(self, record: Record) -> None:
        if len(self.ranks) >= RANKS_KEPT:
            self.ranks = self.ranks[::2]
        self.ranks.append(record)

    _TAKERS = {"start": _start, "train": _update, "evaluation": _evaluation, "ranks": _of_ranks}  # noqa: RUF012


def _record(line: bytes) -> Record:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: object, otherwise: float = nan) -> float:
    return float(value) if isinstance(value, int | float) else otherwise


def thinned(xs: Sequence[float], ys: Sequence[float], points: int) -> tuple[list[float], list[float]]:
    """About `points` of a series, for drawing: the first, the last, and the extremes of stretches between.

    Points of which x or y is not finite are left out.
    """
    places = [index for index in kept(ys, points) if isfinite(xs[index])]
    return [xs[index] for index in places], [ys[index] for index in places]


def kept(ys: Sequence[float], points: int) -> list[int]:
    """Where those points of a series stand that `thinned` keeps."""
    import numpy as np  # not for those who only follow the file

    values = np.asarray(ys, dtype=np.float64)
    fine = np.flatnonzero(np.isfinite(values))
    if len(fine) <= max(points, 3):
        return [int(index) for index in fine]
    inner = fine[1:-1]
    found = {int(fine[0]), int(fine[-1])}
    for among in np.array_split(inner, max(1, (points - 2) // 2)):
        if len(among):
            found |= {int(among[values[among].argmin()]), int(among[values[among].argmax()])}
    return sorted(found)
