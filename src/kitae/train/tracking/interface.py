"""What a tracker is told, and what it has to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from kitae.recipe.tracking import TrackingConfig

Outcome = Literal["finished", "stopped", "failed"]
"""How an attempt ended."""


@dataclass(frozen=True)
class Point:
    """Numbers of one line of the metrics."""

    step: int
    time: float
    """When it was read, in seconds since 1970."""
    values: Mapping[str, float]
    """By name, such as `train/loss`."""


@dataclass(frozen=True)
class TrackedRun:
    """What trackers are told of a run."""

    folder: Path
    name: str
    config: TrackingConfig
    recipe: Mapping[str, Any]
    """What decides what is learned, as JSON; nothing that could hold a secret."""
    resumed_step: int
    """Updates that are done when the attempt begins."""


class Tracker(Protocol):
    """One tracked run. Whatever it raises is told, and does not stop the training."""

    id: str
    """By which the run is found when it goes on."""
    shown: str
    """Where a person sees it."""

    def send(self, points: Sequence[Point]) -> None:
        """Take points, in the order of the metrics file; either all of them, or it raises."""
        ...

    def close(self, outcome: Outcome) -> None:
        """Hand over what is still held."""
        ...


Open = Callable[[TrackedRun, str | None], Tracker]
"""Opens a tracker, to go on with the tracked run of an id where one is given. May wait for a network."""


@dataclass(frozen=True)
class Kind:
    """A row of the table of trackers."""

    open: Open
    packages: tuple[str, ...]
    """Modules that have to be there."""
    place: Callable[[TrackedRun], str]
    """Where tracked runs lie: a run that is tracked elsewhere from now on begins there anew."""
    hides: bool = False
    """Whether it hides what it has of steps after the one that an attempt goes on from."""
