"""Starts the trackers of an attempt and ends them with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kitae.errors import StoppedError
from kitae.recipe.schema import Recipe
from kitae.train.tracking.follower import Follower
from kitae.train.tracking.interface import Outcome, TrackedRun
from kitae.train.tracking.memory import Memory
from kitae.train.tracking.table import TRACKERS, check_trackers

_LEFT_OUT = {"target", "tracking", "runs", "kitae"}
"""Of the recipe: they do not say what is learned, and `target.setup` may hold logins."""


@contextmanager
def tracking(
    recipe: Recipe, folder: Path, resumed_step: int, report: Callable[[str], None]
) -> Iterator[None]:
    """Follow the metrics file in `folder`, which is there, while it is entered. Raises `RecipeError`."""
    names = recipe.tracking.trackers
    check_trackers(names)
    values = recipe.model_dump(mode="json", exclude=_LEFT_OUT, exclude_none=True)
    run = TrackedRun(folder, recipe.name, recipe.tracking, values, resumed_step)
    memory = Memory(folder)
    followers = [Follower(name, TRACKERS[name], run, memory, report) for name in names]
    for follower in followers:
        follower.start()
    outcome: Outcome = "failed"
    try:
        yield
        outcome = "finished"
    except StoppedError:
        outcome = "stopped"
        raise
    finally:
        for follower in followers:
            follower.close(outcome)
