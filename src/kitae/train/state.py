"""What a run remembers besides tensors, and how all of it goes into a checkpoint and comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from kitae.checkpoint.fetched import FetchedSource, to_be_sent
from kitae.checkpoint.live import LiveSink, LiveSource
from kitae.checkpoint.resume import Checkpoint
from kitae.checkpoint.stream import fill
from kitae.errors import RecipeError
from kitae.parallel.copies import check_copies
from kitae.parallel.layout import LayoutTable, ParameterLayout
from kitae.parallel.shares import share_layouts
from kitae.train.job import TrainJob
from kitae.train.optimizer import MOMENTS
from kitae.train.step import Stepper

SOURCES: dict[bool, type[LiveSource]] = {False: LiveSource, True: FetchedSource}
"""What reads parameters and state, by `Backend.lazy`."""
Opened = Callable[[Mapping[str, torch.Tensor]], AbstractContextManager[Mapping[str, torch.Tensor]]]
TARGETS: dict[bool, Opened] = {False: nullcontext, True: to_be_sent}
"""Where they are read into."""


@dataclass
class TrainState:
    """Counters of a run. Data order and learning rate follow from them; there is no random state."""

    step: int = 0
    """Optimizer updates done."""
    consumed_samples: int = 0
    """Rows trained on in this phase: the data cursor."""
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


@dataclass(frozen=True)
class HeldBy:
    """Layouts of what each rank of the world updates and saves."""

    table: LayoutTable
    data_parallel_size: int
    tensor_parallel_size: int
    zero1: bool

    def __call__(self, rank: int) -> list[ParameterLayout]:
        """Those of one rank."""
        data_rank, tensor_rank = divmod(rank, self.tensor_parallel_size)
        layouts = self.table(self.tensor_parallel_size, tensor_rank)
        return share_layouts(layouts, self.data_parallel_size, data_rank) if self.zero1 else layouts


class Saver:
    """Saves, with all ranks, everything that the next update depends on."""

    def __init__(self, job: TrainJob, stepper: Stepper) -> None:
        self._job, self._stepper = job, stepper
        mesh = job.mesh
        zero1 = stepper.shares.group.size > 1
        self._held_by = HeldBy(job.model.table, mesh.data.size, mesh.tensor.size, zero1)
        kinds = {"weights": stepper.weights.masters}
        kinds |= {kind: stepper.optimizer.moments(kind) for kind in MOMENTS}
        source = SOURCES[job.backend.lazy]
        self._sources = {kind: source(tensors, stepper.shares.layouts) for kind, tensors in kinds.items()}

    def save(self, state: TrainState, heldout_loss: float | None) -> Path:
        """Save and wait; the folder of the checkpoint. `TrainingError` when ranks hold different values."""
        self._check()
        return self._job.store.save(state.step, self._sources, **self._about(state, heldout_loss))

    def begin(self, state: TrainState, heldout_loss: float | None) -> None:
        """Save beside the training; the store says when it is done. Errors of the state as in `save`."""
        self._check()
        self._job.store.begin_save(state.step, self._sources, **self._about(state, heldout_loss))

    def _check(self) -> None:
        stepper = self._stepper
        if stepper.backend.pretends:
            return  # what is read back is made up, on every rank otherwise
        shares = stepper.shares
        sharded = shares.group.size > 1
        check_copies(stepper.weights.masters, shares.layouts, stepper.mesh, sharded, self._end_graph)

    def _end_graph(self, made: Sequence[torch.Tensor]) -> None:
        self._stepper.backend.boundary("save", outputs=made)

    def _about(self, state: TrainState, heldout_loss: float | None) -> dict[str, Any]:
        return {
            "state": asdict(state),
            "config": dict(self._job.model_config),
            "recipe_hash": self._job.recipe_hash,
            "heldout_loss": heldout_loss,
            "layouts_of": self._held_by if self._job.mesh.control.size > 1 else None,
        }


def restore(stepper: Stepper, checkpoint: Checkpoint, before: int = 0) -> TrainState:
    """Fill weights and optimizer from a checkpoint of any topology; the counters.

    `before` of its updates were made in earlier phases, which the optimizer knows nothing of.
    """
    targets = {"weights": stepper.weights.masters}
    targets |= {kind: stepper.optimizer.moments(kind) for kind in MOMENTS}
    opened = TARGETS[stepper.backend.lazy]
    for kind, tensors in targets.items():
        with opened(tensors) as held, LiveSink(held, stepper.shares.layouts) as sink:
            fill(checkpoint.source(kind), sink)
    stepper.publish()
    state = _state(checkpoint.state)
    stepper.optimizer.restore_step(state.step - before, before)
    return state


def begin_after(stepper: Stepper, start: Checkpoint, steps: int) -> TrainState:
    """Fill weights and optimizer from another run's checkpoint; its step counts, its data do not.

    RecipeError when the training would be over by then.
    """
    if start.step >= steps:
        raise RecipeError(
            f"training.duration: the training ends after step {steps}, and {start.path}, which model.run and "
            f"model.with_optimizer begin from, is at step {start.step} already; make it longer, or leave "
            "model.with_optimizer out"
        )
    return TrainState(step=restore(stepper, start).step)


def _state(saved: Mapping[str, Any]) -> TrainState:
    return TrainState(**{name: saved[name] for name in TrainState.__dataclass_fields__})
