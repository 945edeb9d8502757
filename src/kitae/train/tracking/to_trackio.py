"""trackio: a run of a project on this machine, on a server, or in a Space of the Hugging Face hub."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from kitae.train.tracking.interface import Outcome, Point, TrackedRun


def place_of(run: TrackedRun) -> str:
    """Where the project is."""
    given, known = run.config.trackio, os.environ.get
    there = given.space or given.server or known("TRACKIO_SPACE_ID") or known("TRACKIO_SERVER_URL")
    return f"project {run.config.project} {'on ' + there if there else 'on this machine'}"


def _quiet() -> Any:
    """The library, without its lines on where to look, which kitae tells itself; its warnings stay."""
    library = import_module("trackio")
    vars(library)["print"] = _say_nothing
    vars(library.utils)["print_dashboard_instructions"] = _say_nothing
    return library


def _say_nothing(*words: object, **settings: object) -> None:
    """In the place of `print`: sys.stdout is the whole process's, and may not be turned away for it."""


class TrackioRun:
    """It finds runs again by their names, so the name is made unlike all others."""

    def __init__(self, run: TrackedRun, known: str | None) -> None:
        self.id = known or f"{run.name}-{secrets.token_hex(3)}"
        self.shown = f"run {self.id} of {place_of(run)}: trackio show --project {run.config.project}"
        given = run.config.trackio
        self._run: Any = _quiet().init(
            project=run.config.project,
            name=self.id,
            space_id=given.space,
            server_url=given.server,
            config={**run.recipe, "tags": run.config.tags},
            resume="allow",
            embed=False,
            auto_log_gpu=False,  # machines are watched by kitae itself, outside of the training
            auto_log_cpu=False,
        )

    def send(self, points: Sequence[Point]) -> None:
        """Hand the points to its own thread, which sends or stores them."""
        for point in points:
            self._run.log(dict(point.values), step=point.step)

    def close(self, outcome: Outcome) -> None:
        """Wait until its thread is done."""
        self._run.finish()
