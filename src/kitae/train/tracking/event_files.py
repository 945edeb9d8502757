"""TensorBoard: event files in the run's folder."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from kitae.train.tracking.interface import Outcome, Point, TrackedRun


def folder_of(run: TrackedRun) -> Path:
    """Where the files lie."""
    return run.folder / "tensorboard"


class EventFiles:
    """Hides what an earlier attempt wrote for steps after the one that this attempt goes on from."""

    def __init__(self, run: TrackedRun, known: str | None) -> None:
        folder = folder_of(run)
        self.id = folder.name
        self.shown = f"tensorboard --logdir {folder}"
        # Files of which nothing is known are hidden as a whole, as all is written again.
        purge = 0 if known is None else run.resumed_step + 1
        self._writer: Any = import_module("torch.utils.tensorboard").SummaryWriter(
            str(folder), purge_step=purge
        )

    def send(self, points: Sequence[Point]) -> None:
        """Write the points out."""
        for point in points:
            for name, value in point.values.items():
                self._writer.add_scalar(name, value, point.step, walltime=point.time)
        self._writer.flush()

    def close(self, outcome: Outcome) -> None:
        """Close the file."""
        self._writer.close()
