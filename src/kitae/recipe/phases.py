"""Phases of a training: each is the whole recipe with some values changed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from kitae.recipe.base import Duration, Positive, PositiveDuration, Section
from kitae.recipe.sources import HeldoutConfig, SourceConfig
from kitae.recipe.training import Beta, NotNegative


class PhaseData(Section):
    """Other text, or other rows of it."""

    train: Annotated[list[SourceConfig], Field(min_length=1)] | None = None
    """Sources to train on."""
    heldout: HeldoutConfig | None = None
    """Held-out text."""
    sequence_length: Annotated[int, Field(ge=2)] | None = None
    """Tokens in a row."""


class PhaseOptimizer(Section):
    """Another step size or decay."""

    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Peak learning rate."""
    betas: tuple[Beta, Beta] | None = None
    """Decay rates of the first and the second moment."""
    eps: Annotated[float, Field(gt=0)] | None = None
    """Added to the root of the second moment."""
    weight_decay: NotNegative | None = None
    """Decoupled decay of matrices."""


class PhaseSchedule(Section):
    """Another course of the learning rate."""

    kind: Literal["linear", "cosine", "constant"] | None = None
    """Shape of the decay after the warm-up."""
    warmup: Duration | None = None
    """Linear rise from 0 to the peak."""
    min_ratio: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of the peak that the decay ends at."""


class PhaseTraining(Section):
    """Another length and other batches."""

    duration: PositiveDuration | None = None
    """How long the phase lasts."""
    global_batch_size: Positive | None = None
    """Rows in one optimizer update."""
    micro_batch_size: Positive | Literal["auto"] | None = None
    """Rows in one forward and backward pass."""
    recompute: Literal["none", "selective", "full"] | None = None
    """What the backward pass computes again."""


class PhaseEvaluation(Section):
    """Another way to look at held-out text."""

    every: PositiveDuration | Literal["never"] | None = None
    """How often to evaluate."""
    max_rows: Positive | None = None
    """Use only the first rows of the held-out text."""
    micro_batch_size: Positive | Literal["auto"] | None = None
    """Rows in one forward pass."""


class PhaseConfig(Section):
    """A stretch of the training; what it leaves out is as in the recipe.

    Weights go on from phase to phase; the optimizer's state, the schedule and the data begin anew.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]
    """Name of the phase in results and file names: up to 40 letters, digits, dots, dashes and underscores."""
    data: PhaseData = PhaseData()
    """Its text."""
    optimizer: PhaseOptimizer = PhaseOptimizer()
    """Its optimizer, of the same kind."""
    schedule: PhaseSchedule = PhaseSchedule()
    """Its learning rate."""
    training: PhaseTraining = PhaseTraining()
    """Its length and batches."""
    evaluation: PhaseEvaluation = PhaseEvaluation()
    """Its evaluations."""

    def changes(self) -> dict[str, dict[str, Any]]:
        """What it changes, by section."""
        sections = ("data", "optimizer", "schedule", "training", "evaluation")
        return {name: self.given(getattr(self, name)) for name in sections}

    @staticmethod
    def given(section: Section) -> dict[str, Any]:
        """The fields of a section that are set."""
        values = ((name, getattr(section, name)) for name in type(section).model_fields)
        return {name: value for name, value in values if value is not None}
