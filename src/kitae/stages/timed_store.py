"""A run's checkpoints, and how long the training waits for each: `saves.jsonl`, one line a save."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from kitae.backend.group import Group
from kitae.checkpoint.store import CheckpointStore
from kitae.stages.accuracy import SAVES


class TimedStore(CheckpointStore):
    """Notes the seconds of every save; a full disk, which the save itself tells of, leaves a line out."""

    def __init__(self, folder: Path, *, control: Group, **options: Any) -> None:
        super().__init__(folder, control=control, **options)
        self._notes = folder.parent / SAVES if control.rank == 0 else None

    def save(self, step: int, *given: Any, **about: Any) -> Path:
        """See `CheckpointStore`."""
        begin = time.perf_counter()
        path = super().save(step, *given, **about)
        self._note(step, begin)
        return path

    def begin_save(self, step: int, *given: Any, **about: Any) -> None:
        """See `CheckpointStore`; what is written beside the training is not waited for."""
        begin = time.perf_counter()
        super().begin_save(step, *given, **about)
        self._note(step, begin)

    def _note(self, step: int, begin: float) -> None:
        if self._notes is None:
            return
        line = {"step": step, "seconds": time.perf_counter() - begin, "time": time.time()}
        with suppress(OSError), self._notes.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
