"""`metrics.jsonl`: what happened, one JSON object a line, only ever appended to.

Every line has `kind` and `step` (optimizer updates done):

    start       an attempt begins or resumes at `step`: attempt, time, backend, precision, peak
    train       an update: loss, learning_rate, grad_norm, step_seconds, tokens, tokens/s, utilisation, memory
    evaluation  held-out loss
    ranks       now and then: how long each rank computes in a step, and which are slow
    not-finite  the attempt ends, as a value is not finite: what and where it began

Where a training has phases, updates and evaluations name theirs as `phase`.

A run that is killed has written lines for steps that its checkpoint does not have. When it resumes, those
belong to a time line that did not happen: they are cut off, so that each step stands in the file once. Lines
of kind `start` stay: they count the attempts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from kitae.storage.disk import storage_errors
from kitae.storage.files import replace_file

Record = dict[str, Any]


def read_records(path: Path) -> Iterator[Record]:
    """Lines of a metrics file; one that a kill left half-written is passed over."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if line.endswith("\n"):
                yield record


class MetricsLog:
    """Appends to a metrics file, which is first brought back to `resumed_step` (0: to its start)."""

    def __init__(self, path: Path, resumed_step: int) -> None:
        self.path = path
        with storage_errors(path):
            kept = [record for record in read_records(path) if _happened(record, resumed_step)]
            replace_file(path, "".join(_line(record) for record in kept).encode())
            self._file = path.open("a", encoding="utf-8")
        self.attempts = sum(record["kind"] == "start" for record in kept)
        self._evaluated = {_evaluation(record) for record in kept if record["kind"] == "evaluation"}

    def write(self, record: Record) -> None:
        """Append a line and hand it to the system: it survives a kill of this process."""
        line = _line(record)
        with storage_errors(self.path, len(line)):
            self._file.write(line)
            self._file.flush()
        if record["kind"] == "evaluation":
            self._evaluated.add(_evaluation(record))

    def sync(self) -> None:
        """Wait until all lines are on the disk, so that no checkpoint saved after them outlives them."""
        with storage_errors(self.path):
            os.fsync(self._file.fileno())

    def has_evaluation(self, step: int, phase: str | None = None) -> bool:
        """Whether the held-out loss of a phase after `step` updates is in the file."""
        return (step, phase) in self._evaluated

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _evaluation(record: Record) -> tuple[int, str | None]:
    return record["step"], record.get("phase")


def _happened(record: Record, resumed_step: int) -> bool:
    return bool(record["kind"] == "start" or 0 < resumed_step >= record["step"])


def _line(record: Record) -> str:
    return json.dumps(record, allow_nan=False, ensure_ascii=False) + "\n"
