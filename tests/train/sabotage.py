"""What befalls a rank of a training in the tests: a signal at a certain call of a certain function."""

from __future__ import annotations

import os
import signal
from typing import Any

from kitae.checkpoint.store import CheckpointStore
from kitae.parallel.mesh import Mesh
from kitae.train import loop, objective, step

PLACES: dict[str, tuple[Any, str]] = {
    "warm-up": (loop, "build_stepper"),
    "train": (loop.Stepper, "loss_of"),
    "reduce": (step.AtOnce, "_apply"),
    "evaluation": (objective.CausalLM, "scores"),
    "save": (CheckpointStore, "_finish"),
}
ALL_RANKS = -1


def signal_at(mesh: Mesh, *, rank: int, place: str, count: int, number: int) -> None:
    """Let a rank (or `ALL_RANKS`) send itself a signal when it reaches a place for the `count`-th time."""
    if mesh.rank != rank and rank != ALL_RANKS:
        return
    owner, name = PLACES[place]
    usual, calls = getattr(owner, name), []

    def wrapped(*arguments: Any, **options: Any) -> Any:
        calls.append(name)
        if len(calls) == count:
            os.kill(os.getpid(), number)
        return usual(*arguments, **options)

    setattr(owner, name, wrapped)


def killed(mesh: Mesh, *, place: str, count: int) -> None:
    """Let all ranks die at once."""
    signal_at(mesh, rank=ALL_RANKS, place=place, count=count, number=signal.SIGKILL)
