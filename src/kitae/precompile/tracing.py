"""Traces a training's programs for one rank: all of one update, and an evaluation, without data or peers.

The very code of the training runs, over rows of zeros. Of the micro-batches of an update the first, the
second and the last are traced; those between are like the second, and only their losses take part in the
update.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kitae.checkpoint.store import CheckpointStore
from kitae.data.examples import Sample
from kitae.model.architecture import architecture_of
from kitae.model.tables import ModelConfig
from kitae.parallel.mesh import Mesh
from kitae.parallel.region import region_of
from kitae.plan.work import Work
from kitae.precompile.empty_rows import EmptyRows
from kitae.precompile.expected import expected_update
from kitae.precompile.hlo import Collective
from kitae.precompile.traced import Program, TracedBackend, traced_mesh
from kitae.recipe.schema import Recipe
from kitae.train.batch import GlobalBatch, global_batch, inputs_of, micro_batch
from kitae.train.build import begin_phase, build_stepper
from kitae.train.course import Course, Stretch, course_of
from kitae.train.job import Phase, TrainJob
from kitae.train.late import state_of
from kitae.train.objective import Objective
from kitae.train.step import Stepper

_TRACED = 3
"""Micro-batches of an update that differ: the first, others, the last."""


@dataclass(frozen=True)
class TracedPhase:
    """What one rank computes in a phase of a training."""

    name: str | None
    programs: tuple[Program, ...]
    uses: dict[str, int]
    """How often a program is started in an update, by its graph."""
    expected: Counter[Collective]
    """What layout, mesh and recipe predict for an update."""

    @property
    def update(self) -> Counter[Collective]:
        """The collectives of an update, as its programs hold them."""
        total: Counter[Collective] = Counter()
        for program in self.programs:
            for one, count in program.collectives.items():
                total[one] += count * self.uses.get(program.graph, 0)
        return +total


@dataclass(frozen=True)
class ToTrace:
    """A training, by its phases."""

    config: ModelConfig
    tied: bool
    phases: Sequence[tuple[str | None, Recipe, Work]]

    @property
    def first(self) -> Work:
        """Topology and precision are the same in all phases."""
        return self.phases[0][2]


def trace(training: ToTrace, rank: int) -> list[TracedPhase]:
    """The programs of one rank, by phase. The process cannot run any program afterwards."""
    work = training.first
    mesh = traced_mesh(work.world, work.tensor_parallel, rank)
    backend = TracedBackend()
    job = _job(training, mesh, backend)
    course = course_of(job)
    stepper: Stepper | None = None
    found = []
    for stretch, (name, _, of_phase) in zip(course.stretches, training.phases, strict=True):
        backend.programs.clear()
        stepper = _entered(job, course, stretch, stepper)
        uses = _update(stepper, stretch)
        if stretch.phase.recipe.data.heldout is not None:
            _evaluate(stepper, stretch)
        expected = expected_update(of_phase, job.model.layouts, rank)
        found.append(TracedPhase(name, tuple(backend.programs), uses, expected))
    return found


def _job(training: ToTrace, mesh: Mesh, backend: TracedBackend) -> TrainJob:
    """A training whose weights have a shape and no memory."""
    config, (_, recipe, _) = training.config, training.phases[0]
    region = region_of(mesh.tensor, recipe.parallel.sequence_parallel)
    build = architecture_of(config).build
    model = build(config, tied=training.tied, dtype=torch.float32, device=backend.device, region=region)
    backend.forget()
    nowhere = Path(recipe.runs)
    return TrainJob(
        model=model,
        phases=tuple(Phase(one, EmptyRows(work), None, "", name) for name, one, work in training.phases),
        recipe_hash="",
        store=CheckpointStore(nowhere, keep=1),
        folder=nowhere,
        backend=backend,
        model_config={},
        report=lambda line: None,
        mesh=mesh,
    )


def _entered(job: TrainJob, course: Course, stretch: Stretch, before: Stepper | None) -> Stepper:
    """Begin the training, or its next phase, as `train.loop` does."""
    if before is not None:
        return begin_phase(before, stretch.phase, stretch.first)
    stepper = build_stepper(job, stretch.phase)
    job.backend.boundary("begin", outputs=state_of(stepper))
    return stepper


def _update(stepper: Stepper, stretch: Stretch) -> dict[str, int]:
    """Trace an update; how often each of its programs is started."""
    lengths, backend = stretch.lengths, stepper.backend
    assert isinstance(backend, TracedBackend)
    count = lengths.accumulation_steps
    shown = min(count, _TRACED)
    rows = [Sample(number) for number in range(shown * lengths.micro_batch_size * stepper.mesh.data.size)]
    batch = global_batch(
        stretch.phase.train,
        rows,
        lengths.micro_batch_size,
        backend.device,
        stepper.mesh,
        stepper.objective.tensors,
        least=shown,
    )
    sparing: Any = _Sparing(stepper.objective, backend, count)
    rate, step = stretch.schedule.rate(0), stretch.first + 1
    replace(stepper, objective=sparing).begin(_longer(batch, count), rate, step=step)
    return {"train/only": 1, "train/first": 1, "train/middle": count - 2, "train/last": 1, "update": 1}


def _longer(batch: GlobalBatch[Any], count: int) -> GlobalBatch[Any]:
    """With the second micro-batch as often as it takes."""
    first, *others = batch.micro_batches
    middle = others[:1] * (count - 2) if count > 1 else []
    return replace(batch, micro_batches=(first, *middle, *others[-1:]))


@dataclass
class _Sparing:
    """An objective whose loss is computed three times in an update, and made up between."""

    objective: Objective
    backend: TracedBackend
    count: int
    done: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.objective, name)

    def loss(self, part: Any, counts: Any, step: int) -> torch.Tensor:
        """See `Objective`."""
        self.done += 1
        self.backend.repeats = 2 < self.done < self.count
        if self.backend.repeats:
            return self.backend.placeholder((), torch.float32).requires_grad_()
        return self.objective.loss(part, counts, step)


@torch.no_grad()
def _evaluate(stepper: Stepper, stretch: Stretch) -> None:
    """Trace one batch of held-out rows, as `train.evaluate` does."""
    size, backend, objective = stretch.lengths.eval_micro_batch_size, stepper.backend, stepper.objective
    samples = [Sample(number) for number in range(size)]
    part = micro_batch(stretch.phase.train, samples, size, backend.device, objective.tensors)
    backend.boundary("evaluate", inputs_of(part), [objective.scores(part)])
