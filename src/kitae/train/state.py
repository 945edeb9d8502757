"""What a run remembers besides tensors, and how all of it goes into a checkpoint and comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kitae.checkpoint.live import LiveSink, LiveSource
from kitae.checkpoint.resume import Checkpoint
from kitae.checkpoint.stream import stream
from kitae.errors import RecipeError
from kitae.train.job import TrainJob
from kitae.train.optimizer import MOMENTS, Optimizer
from kitae.train.precision import Weights


@dataclass
class TrainState:
    """Counters of a run. Data order and learning rate follow from them; there is no random state."""

    step: int = 0
    """Optimizer updates done."""
    consumed_samples: int = 0
    """Rows trained on: the data cursor."""
    padded_tokens: int = 0
    real_tokens: int = 0
    best_heldout_loss: float | None = None


def check_same_recipe(job: TrainJob, checkpoint: Checkpoint) -> None:
    """Raise `RecipeError` when the checkpoint is of another training."""
    if checkpoint.manifest.recipe_hash != job.recipe_hash:
        raise RecipeError(
            f"{checkpoint.path} is of a run with other settings, which this recipe cannot go on from: give "
            "the run another name, put the settings back, or start from its weights alone with model.run"
        )


def save(
    job: TrainJob, weights: Weights, optimizer: Optimizer, state: TrainState, heldout_loss: float | None
) -> Path:
    """Save everything that the next update depends on; the folder of the checkpoint."""
    layouts = job.decoder.layouts
    sources = {"weights": LiveSource(weights.masters, layouts)}
    sources |= {kind: LiveSource(optimizer.moments(kind), layouts) for kind in MOMENTS}
    return job.store.save(
        state.step,
        sources,
        state=asdict(state),
        config=dict(job.model_config),
        recipe_hash=job.recipe_hash,
        heldout_loss=heldout_loss,
    )


def restore(job: TrainJob, weights: Weights, optimizer: Optimizer, checkpoint: Checkpoint) -> TrainState:
    """Fill weights and optimizer from a checkpoint; the counters."""
    targets = {"weights": weights.masters} | {kind: optimizer.moments(kind) for kind in MOMENTS}
    for kind, tensors in targets.items():
        with LiveSink(tensors, job.decoder.layouts) as sink:
            stream(checkpoint.source(kind), sink)
    weights.publish()
    state = _state(checkpoint.state)
    optimizer.restore_step(state.step)
    return state


def _state(saved: Mapping[str, Any]) -> TrainState:
    return TrainState(**{name: saved[name] for name in TrainState.__dataclass_fields__})
