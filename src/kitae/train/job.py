"""What a training needs, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kitae.backend.base import Backend
from kitae.checkpoint.resume import Checkpoint
from kitae.checkpoint.store import CheckpointStore
from kitae.data.examples import Examples
from kitae.parallel.mesh import Mesh
from kitae.recipe.schema import Recipe


@dataclass(frozen=True)
class Phase:
    """A stretch of a training with its own rows, batches and rates."""

    recipe: Recipe
    """Optimizer, schedule, training and evaluation are read."""
    train: Examples[Any]
    heldout: Examples[Any] | None
    data_key: str
    """Key of the prepared data, for the results."""
    name: str | None = None
    """None where a training has no phases."""


@dataclass(frozen=True)
class TrainJob:
    """A training, wholly described."""

    model: Any
    """Decoder or encoder. Holds the weights to start from, on the backend's device; trained in place;
    resuming fills it."""
    phases: tuple[Phase, ...]
    """One after another: weights go on, the optimizer's state and the data begin anew."""
    recipe_hash: str
    """Key of the training: a checkpoint with another one is not resumed."""
    store: CheckpointStore
    folder: Path
    """The run's folder: `metrics.jsonl`, `results.json`, `evaluations/` what trackers keep appear in it."""
    backend: Backend
    model_config: Mapping[str, Any]
    """The model's Hugging Face config.json, kept in each checkpoint."""
    report: Callable[[str], None] = field(default=print)
    """Takes a line for a person."""
    start: Checkpoint | None = None
    """Of which a training that begins takes the optimizer's state and the step count."""
    mesh: Mesh = field(default_factory=Mesh)
    """The ranks that train together; every one of them has a job of its own."""

    @property
    def recipe(self) -> Recipe:
        """What all phases share: objective, precision, parallel, checkpoint, tracking and seed."""
        return self.phases[0].recipe


@dataclass(frozen=True)
class TrainResult:
    """How a training ended."""

    steps: int
    checkpoint: Path
    """Of the last step."""
    results: dict[str, Any]
    """What `results.json` holds."""
    resumed_from: int | None
    """Step of the checkpoint that this attempt went on from; None when it began anew."""
    already_complete: bool
    """Whether there was nothing left to do; the model was then left as it came."""
