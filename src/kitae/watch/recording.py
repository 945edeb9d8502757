"""Samples of one node written into the run: bounded, however long it goes on.

When a file is full, every two lines become one, the mean of both over their whole time, and from then on so
many samples more go into a line: the lines of a file always stand for all of the run, ever more coarsely.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kitae.storage.files import replace_file, show_file
from kitae.watch.samples import Sample, lines_file, mean_of, now_file, samples_in

MOST_LINES = 2000


class Recording:
    """Takes samples; a disk that is full loses some and harms nobody."""

    def __init__(self, run: Path, node: str, period_s: float, most_lines: int = MOST_LINES) -> None:
        self._path, self._now = lines_file(run, node), now_file(run, node)
        self._most_lines = most_lines
        self._waiting: list[Sample] = []
        before = samples_in(self._path)
        self._lines = len(before)
        self._together = max([1, *(round(one.period_s / period_s) for one in before[-3:])])
        """Samples that go into a line."""
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._end_line()

    def write(self, sample: Sample) -> None:
        """Show it as the newest, and have it in a line."""
        with suppress(OSError):
            show_file(self._now, _line(sample))
        self._waiting.append(sample)
        if len(self._waiting) >= self._together:
            self.flush()

    def flush(self) -> None:
        """Write a line with what waits for one."""
        if not self._waiting:
            return
        line = _line(mean_of(self._waiting))
        self._waiting = []
        with suppress(OSError):
            if self._lines >= self._most_lines:
                self._halve()
            with self._path.open("ab") as file:
                file.write(line)
            self._lines += 1

    def _halve(self) -> None:
        pairs = list(_pairs(samples_in(self._path)))
        replace_file(self._path, b"".join(map(_line, pairs)))
        self._lines = len(pairs)
        self._together *= 2

    def _end_line(self) -> None:
        """Let no line begin within one that a kill has left half-written."""
        with suppress(FileNotFoundError), self._path.open("rb+") as file:
            if file.seek(0, 2):
                file.seek(-1, 2)
                if file.read() != b"\n":
                    file.write(b"\n")


def _pairs(samples: list[Sample]) -> Iterator[Sample]:
    for start in range(0, len(samples), 2):
        yield mean_of(samples[start : start + 2])


def _line(sample: Sample) -> bytes:
    return (json.dumps(sample.as_json(), allow_nan=False) + "\n").encode()
