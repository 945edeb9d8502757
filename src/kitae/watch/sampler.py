"""The process beside a training that takes samples of its machine, and may lead: raise the alarms of the run.

It is started by `launch.helper`, has no torch, and ends with the process that started it: its standard input
ends then, or it has another parent. What it says is JSON lines: `{"event": ..., "alarm": ...}` and
`{"note": ...}`. Whatever fails is told once, and tried again at the next sample.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol

from kitae.storage.lock import exclusive
from kitae.watch.lead import Lead
from kitae.watch.recording import Recording
from kitae.watch.samples import FOLDER, lines_file
from kitae.watch.sources import open_source

LOOK_S = 1.0
"""How often the parent is looked at."""
LAST_WORDS_S = 3.0
"""How long alarms may be told once the training has ended."""
SHORTEST_S = 0.1
"""What a last sample has to cover."""
_NICE = 10
_PASSED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that schedulers send to all processes of a job: the training decides what follows."""


class Part(Protocol):
    """What is done once a period."""

    def tick(self) -> None:
        """Do it."""
        ...

    def end(self) -> None:
        """Do it a last time."""
        ...


class Sampling:
    """Takes samples of this machine."""

    def __init__(self, run: Path, node: str, backend: str, period_s: float, root: int) -> None:
        self._recording = Recording(run, node, period_s)
        self._source = open_source(period_s, run, backend=backend, root=root, node=node)

    def tick(self) -> None:
        """See `Part`."""
        self._recording.write(self._source.sample())

    def end(self) -> None:
        """See `Part`."""
        sample = self._source.sample()
        self._source.close()
        if sample.period_s >= SHORTEST_S:
            self._recording.write(sample)
        self._recording.flush()


class Leading:
    """Raises the alarms."""

    def __init__(self, lead: Lead) -> None:
        self._lead = lead

    def tick(self) -> None:
        """See `Part`."""
        self._lead.look()

    def end(self) -> None:
        """See `Part`."""
        self._lead.end(LAST_WORDS_S)


class Sampler:
    """The life of the process."""

    def __init__(self, settings: Mapping[str, Any], parent: int) -> None:
        self._settings, self._parent = settings, parent
        self._period_s = float(settings["period_s"])
        self._parts: list[Part] = []
        self._failed: set[str] = set()

    def live(self) -> None:
        """Until the parent is gone."""
        with ExitStack() as stack:
            self._open(stack)
            due = time.monotonic() + self._period_s
            while not self._over(due):
                self._do(lambda part: part.tick())
                due = max(due + self._period_s, time.monotonic())
            self._do(lambda part: part.end())

    def _open(self, stack: ExitStack) -> None:
        """Begin when one of an attempt before, which may still be ending, has ended."""
        run, period_s = Path(self._settings["run"]), self._period_s
        backend, node = str(self._settings["backend"]), self._settings.get("node")
        if node is not None:
            stack.enter_context(_alone(lines_file(run, node).with_suffix(".lock")))
            self._try(lambda: self._parts.append(Sampling(run, node, backend, period_s, self._parent)))
        alarms = self._settings.get("alarms")
        if alarms is not None:
            stack.enter_context(_alone(run / FOLDER / "alarms.lock"))
            self._try(lambda: self._parts.append(Leading(Lead(run, backend, period_s, alarms, say))))

    def _over(self, due: float) -> bool:
        """Wait until then; whether the parent has gone meanwhile."""
        while True:
            left = due - time.monotonic()
            if left <= 0:
                return False
            ready, _, _ = select.select([0], [], [], min(left, LOOK_S))
            if os.getppid() != self._parent or (ready and not os.read(0, 4096)):
                return True

    def _do(self, what: Callable[[Part], None]) -> None:
        for part in self._parts:
            self._try(lambda part=part: what(part))  # type: ignore[misc]

    def _try(self, what: Callable[[], None]) -> None:
        try:
            what()
        except Exception as error:  # nothing that fails here may end the watching, or be told for ever
            text = f"{type(error).__name__}: {error}"
            if text not in self._failed:
                self._failed.add(text)
                say({"note": f"something could not be watched ({text})"})


def say(what: Mapping[str, Any]) -> None:
    """Tell the parent, which may be gone."""
    with suppress(OSError, ValueError):
        os.write(1, (json.dumps(what) + "\n").encode())


def _alone(path: Path) -> Any:
    """A lock in the folder of the samples, where it can be had."""
    stack = ExitStack()
    with suppress(OSError):
        stack.enter_context(exclusive(path))
    return stack


def _first_line() -> bytes:
    """Of the standard input, byte by byte: the rest is only waited for."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line


def main() -> None:
    """Watch until the parent is gone; its settings are the first line of the standard input."""
    parent = os.getppid()
    for number in _PASSED_BY:
        signal.signal(number, lambda number, frame: None)
    with suppress(OSError):
        os.nice(_NICE)
    with suppress(ValueError, BrokenPipeError):
        Sampler(json.loads(_first_line()), parent).live()
    sys.stdout = None  # nothing to flush into a pipe that nobody reads


if __name__ == "__main__":
    main()
