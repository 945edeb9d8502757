"""The folder of a run: what happened, which stage is done with which key, and who works in it."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import kitae
from kitae.errors import KitaeError, StoppedError, StorageError
from kitae.stages.files import read_json, write_json
from kitae.stages.termination import Terminated, terminable

_STOPS = (StoppedError, Terminated, KeyboardInterrupt)


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


class RunFolder:
    """`runs/<name>/`; its state lies in `run.json`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.export = path / "export"
        self.results = path / "results.json"
        self.metrics = path / "metrics.jsonl"
        self.samples = path / "samples.json"
        self.recipe = path / "recipe.yaml"
        self.log = path / "logs" / "rank-0.log"
        self._state_path = path / "run.json"
        self.facts: dict[str, Any] = {}
        """What the next attempt records besides."""
        self.state: dict[str, Any] = {"kitae": kitae.__version__, "attempts": [], "stages": {}}
        self.state.update(read_json(self._state_path))

    @property
    def attempts(self) -> int:
        """How many times the run was started."""
        return len(self.state["attempts"])

    def stage(self, name: str) -> dict[str, Any]:
        """What a finished stage recorded; empty when it has not finished."""
        record: dict[str, Any] = self.state["stages"].get(name, {})
        return record

    def finish(self, name: str, key: str, record: dict[str, Any]) -> None:
        """Record that a stage is done with `key`."""
        self.state["stages"][name] = {"key": key, "finished": now(), **record}
        self.write()

    def forget(self, name: str) -> None:
        """Let a stage be done again."""
        self.state["stages"].pop(name, None)
        self.write()

    def write(self) -> None:
        """Write `run.json` as a whole."""
        write_json(self._state_path, self.state)

    @contextmanager
    def attempt(self, refuse: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the run for one attempt and record how it ended, also where SIGTERM ends it.

        What `refuse` raises is no attempt: the run stays what it was.
        """
        with terminable(), self.held():
            self.state.update(read_json(self._state_path))
            refuse()
            record: dict[str, Any] = {
                "started": now(),
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "ended": None,
                "outcome": "running",
                **self.facts,
            }
            for earlier in self.state["attempts"]:
                if earlier["outcome"] == "running":
                    earlier["outcome"] = "killed"
            self.state["attempts"].append(record)
            outcome = "failed"
            why: dict[str, str] = {}
            try:
                self.write()
                yield
                outcome = "finished"
            except BaseException as error:
                outcome = "stopped" if isinstance(error, _STOPS) else "failed"
                why = {"why": str(error) or type(error).__name__}
                raise
            finally:
                record.update(ended=now(), outcome=outcome, **why)
                self._write_outcome()

    def _write_outcome(self) -> None:
        try:
            self.write()
        except StorageError:
            return  # the disk is full: the error that ended the attempt tells so already

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes out of the run; a `KitaeError` when one works in it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("a+")
        except OSError as error:
            raise StorageError(
                f"cannot make the run folder {self.path}: {error.strerror}; set runs to "
                "a folder that can be written to"
            ) from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise KitaeError(
                    f"another kitae process works in {self.path}; wait for it, or give this run another name "
                    "with --set name=..."
                ) from None
            yield
