"""What a training needs, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kitae.backend.base import Backend
from kitae.checkpoint.resume import Checkpoint
from kitae.checkpoint.store import CheckpointStore
from kitae.data.packed import PackedData
from kitae.model.decoder import Decoder
from kitae.parallel.mesh import Mesh
from kitae.recipe.schema import Recipe


@dataclass(frozen=True)
class TrainJob:
    """A training, wholly described."""

    decoder: Decoder
    """Holds the weights to start from, on the backend's device; trained in place; resuming fills it."""
    train: PackedData
    heldout: PackedData | None
    recipe: Recipe
    """Optimizer, schedule, training, evaluation, checkpoint, tensorboard and seed are read."""
    recipe_hash: str
    """Key of the training: a checkpoint with another one is not resumed."""
    store: CheckpointStore
    folder: Path
    """The run's folder: `metrics.jsonl`, `results.json`, `evaluations/` and `tensorboard/` appear in it."""
    backend: Backend
    model_config: Mapping[str, Any]
    """The model's Hugging Face config.json, kept in each checkpoint."""
    data_key: str
    """Key of the packed data, for the results."""
    report: Callable[[str], None] = field(default=print)
    """Takes a line for a person."""
    start: Checkpoint | None = None
    """Of which a training that begins takes the optimizer's state and the step count."""
    mesh: Mesh = field(default_factory=Mesh)
    """The ranks that train together; every one of them has a job of its own."""


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
    """Whether there was nothing left to do; the decoder was then left as it came."""
