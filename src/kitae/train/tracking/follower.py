"""A thread that brings what is appended to a metrics file to one tracker.

The file is what is true, and the training only ever writes to that: a tracker that is slow, or away for
hours, costs neither time nor memory, and gets everything once it answers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

from kitae.train.metrics import Record
from kitae.train.tracking.interface import Kind, Outcome, Point, TrackedRun, Tracker
from kitae.train.tracking.memory import Memory
from kitae.train.tracking.points import group_of, point_of
from kitae.train.tracking.secrets import without_secrets

PERIOD_S, LONGEST_PAUSE_S = 5.0, 300.0
CLOSE_S = 30.0
"""How long the end of a training waits for a tracker."""
BATCH = 100
"""Points at a time: of a thousand numbers, which is as many as MLflow takes at once."""
_MOST_WORDS = 300

Tell = Callable[[str], None]


class Lines:
    """Whole lines that were appended to a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def read(self, most: int) -> list[Record]:
        """The next ones, at most so many."""
        found: list[Record] = []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if len(found) == most or not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                found.append(json.loads(line))
        return found


class Follower(threading.Thread):
    """Follows until it is closed; tells once when a tracker fails, and when it is well again."""

    def __init__(
        self, name: str, kind: Kind, run: TrackedRun, memory: Memory, tell: Tell, period_s: float = PERIOD_S
    ) -> None:
        super().__init__(name=f"tracking-{name}", daemon=True)
        self._tracker_name, self._kind, self._run, self._memory = name, kind, run, memory
        self._tell: Tell = lambda line: tell(f"tracking: {name}: {without_secrets(line)}")
        self._period_s = self._pause_s = period_s
        self._failing = False
        self._lines = Lines(run.folder / "metrics.jsonl")
        self._held: list[Point] = []
        """Read, and not taken yet."""
        self._claims: dict[str, int] = {}
        self._tracker: Tracker | None = None
        self._ending = threading.Event()
        self._outcome: Outcome = "finished"
        self._entry = memory.entry(name, without_secrets(kind.place(run)))
        self._known = self._entry.sent if not kind.hides else self._before(run.resumed_step)

    def _before(self, step: int) -> dict[str, int]:
        return {group: min(sent, step) for group, sent in self._entry.sent.items()}

    def run(self) -> None:
        """Send what is new, now and then, until the end."""
        while True:
            try:
                self._catch_up()
                self._well()
            except Exception as error:
                self._failed(error)
            if self._ending.is_set():
                break
            self._ending.wait(self._pause_s)
            if self._ending.is_set() and self._failing:
                break  # not asked again, as that may take long
        self._close()

    def close(self, outcome: Outcome, wait_s: float = CLOSE_S) -> None:
        """Let it send the rest, and wait for that, though not for long."""
        self._outcome = outcome
        self._ending.set()
        self.join(wait_s)
        if self.is_alive():
            self._tell(f"has not taken everything in {wait_s:g} s; metrics.jsonl has it")

    def _catch_up(self) -> None:
        if self._tracker is None:
            self._open()
        while self._held or self._read():
            assert self._tracker is not None
            self._tracker.send(self._held)
            self._held = []

    def _open(self) -> None:
        self._tracker = self._kind.open(self._run, self._entry.id)
        self._entry.id, self._entry.shown = self._tracker.id, without_secrets(self._tracker.shown)
        self._memory.keep(self._tracker_name, self._entry)
        self._tell(self._tracker.shown)

    def _read(self) -> bool:
        """Read the next points and write down that they are sent, before they are.

        A kill between the two leaves a gap in the tracker, where otherwise it would leave steps that stand
        there twice.
        """
        while records := self._lines.read(BATCH):
            new = [one for one in records if one["step"] > self._known.get(group_of(one), -1)]
            self._held = [point for one in new if (point := point_of(one)) is not None]
            if self._held:
                self._entry.sent = {**self._entry.sent, **{group_of(one): one["step"] for one in new}}
                self._memory.keep(self._tracker_name, self._entry)
                return True
        return False

    def _well(self) -> None:
        if self._failing:
            self._tell("answers again")
        self._failing, self._pause_s = False, self._period_s

    def _failed(self, error: Exception) -> None:
        if not self._failing:
            what = " ".join(str(error).split())[:_MOST_WORDS] or type(error).__name__
            self._tell(f"{what}; the training goes on, metrics.jsonl has everything, and it is tried again")
        self._failing, self._pause_s = True, min(LONGEST_PAUSE_S, 2 * self._pause_s)

    def _close(self) -> None:
        if self._tracker is None:
            return
        try:
            self._tracker.close(self._outcome)
        except Exception as error:
            self._failed(error)
