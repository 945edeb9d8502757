"""The way through a training: its phases one after another, counted out in updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from kitae.data.cursor import Cursor
from kitae.train.job import Phase, TrainJob
from kitae.train.lengths import Lengths, count_out
from kitae.train.schedule import Schedule


@dataclass(frozen=True)
class Stretch:
    """A phase, counted out."""

    phase: Phase
    index: int
    lengths: Lengths
    first: int
    """Updates done before it begins."""

    @property
    def last(self) -> int:
        """Updates done when it ends."""
        return self.first + self.lengths.steps

    @property
    def cursor(self) -> Cursor:
        """The order of its rows; another one in each phase."""
        return Cursor(self.lengths.samples, self.phase.recipe.seed + self.index)

    @property
    def schedule(self) -> Schedule:
        """Its learning rates, by updates since it began."""
        recipe, lengths = self.phase.recipe, self.lengths
        peak = recipe.optimizer.learning_rate
        return Schedule(recipe.schedule, peak, lengths.steps, lengths.warmup_steps)


@dataclass(frozen=True)
class Course:
    """All of a training."""

    stretches: Sequence[Stretch]

    @property
    def steps(self) -> int:
        """Updates of the whole training."""
        return self.stretches[-1].last

    def at(self, step: int) -> Stretch:
        """The stretch that the update after `step` updates belongs to; at the end the last one."""
        return next((one for one in self.stretches if step < one.last), self.stretches[-1])


def course_of(job: TrainJob) -> Course:
    """Count the phases of a resolved job out. Raises `RecipeError` when one would be empty."""
    counted = [
        count_out(one.recipe, samples=len(one.train), sequence_length=one.train.sequence_length)
        for one in job.phases
    ]
    firsts = [0, *accumulate(lengths.steps for lengths in counted)]
    pairs = zip(job.phases, counted, strict=True)
    return Course([Stretch(phase, n, lengths, firsts[n]) for n, (phase, lengths) in enumerate(pairs)])
