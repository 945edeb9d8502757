"""How long everything lasts, in rows and optimizer updates, worked out once before the training starts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from kitae.errors import RecipeError
from kitae.recipe.base import Duration
from kitae.recipe.schema import Recipe, global_batch_size


@dataclass(frozen=True)
class Lengths:
    """A run, counted."""

    samples: int
    """Rows of training text."""
    sequence_length: int
    global_batch_size: int
    micro_batch_size: int
    data_parallel_size: int
    eval_micro_batch_size: int
    rows: int
    """Rows the run trains on; those after the last full global batch make one smaller update."""
    warmup_steps: int
    eval_every: int | None
    save_every: int | None

    @property
    def steps(self) -> int:
        """Optimizer updates of the whole run."""
        return math.ceil(self.rows / self.global_batch_size)

    @property
    def accumulation_steps(self) -> int:
        """Micro-batches of one rank in a full update."""
        return self.global_batch_size // (self.micro_batch_size * self.data_parallel_size)

    def rows_of(self, update: int) -> int:
        """Rows of the update number `update`, counted from 0."""
        return min(self.global_batch_size, self.rows - update * self.global_batch_size)


def count_out(recipe: Recipe, *, samples: int, sequence_length: int) -> Lengths:
    """Count a resolved recipe out for `samples` rows of `sequence_length` tokens.

    Raises `RecipeError` when the training would be empty.
    """
    batch = global_batch_size(recipe)
    duration = recipe.training.duration
    rows = _rows(duration, samples, sequence_length, batch)
    if rows < 1:
        raise RecipeError(f"training.duration: {duration} is not even one row; give at least 1 step")

    def steps(duration: Duration) -> int:
        tokens = batch * sequence_length
        return duration.steps(tokens_per_step=tokens, samples=samples, global_batch_size=batch)

    def every(duration: Duration | Literal["never"]) -> int | None:
        return None if duration == "never" else max(1, steps(duration))

    return Lengths(
        samples=samples,
        sequence_length=sequence_length,
        global_batch_size=batch,
        micro_batch_size=_resolved(recipe.training.micro_batch_size),
        data_parallel_size=_resolved(recipe.parallel.data_parallel_size),
        eval_micro_batch_size=_resolved(recipe.evaluation.micro_batch_size),
        rows=rows,
        warmup_steps=steps(recipe.schedule.warmup),
        eval_every=every(recipe.evaluation.every),
        save_every=every(recipe.checkpoint.every),
    )


def _resolved(size: int | Literal["auto"]) -> int:
    assert size != "auto", "resolve the recipe first"
    return size


def _rows(duration: Duration, samples: int, sequence_length: int, batch: int) -> int:
    """Rows that a run of `duration` trains on; as many updates as `Duration.steps` says."""
    if duration.unit == "steps":
        return int(duration.value) * batch
    if duration.unit == "tokens":
        return math.ceil(duration.value / sequence_length)
    return math.ceil(round(duration.value * samples, 6))
