"""The whole recipe."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from kitae.recipe.base import FieldError, NonEmpty, Section
from kitae.recipe.parallel import ParallelConfig
from kitae.recipe.phases import PhaseConfig
from kitae.recipe.sources import DataConfig, ModelConfig
from kitae.recipe.target import TargetConfig
from kitae.recipe.tracking import TrackingConfig
from kitae.recipe.training import (
    CheckpointConfig,
    EvaluationConfig,
    ExportConfig,
    OptimizerConfig,
    ProofConfig,
    SampleConfig,
    ScheduleConfig,
    TrainingConfig,
)
from kitae.recipe.watching import WatchConfig

FORMAT = 1
"""Version of the recipe format that this kitae reads."""


class Recipe(Section):
    """One job: a model, text, and how the one is trained on the other."""

    kitae: Literal[1]
    """Version of the recipe format."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """Name of the run and its folder in `runs`: up to 100 letters, digits, dots, dashes and underscores."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Every random draw of the run is keyed by it."""
    runs: NonEmpty = "runs"
    """Folder of the runs, relative to where kitae is started."""
    objective: Literal["causal-lm", "masked-lm", "classification"] = "causal-lm"
    """What is learned: the next token, masked tokens (BERT pre-training), or the label of a text."""
    model: ModelConfig
    """The model to start from."""
    data: DataConfig
    """Text to train on and to hold out, and the tokenizer."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """The optimizer."""
    schedule: ScheduleConfig = ScheduleConfig()
    """The learning rate over optimizer updates."""
    training: TrainingConfig
    """How long to train, in which batches and which precision."""
    phases: list[PhaseConfig] = Field(default=[])
    """Stretches of the training with other text, batches or rates; none: the recipe is the one phase."""
    parallel: ParallelConfig = ParallelConfig()
    """How the training is spread over devices."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Held-out loss."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """When to save, and what to keep."""
    export: ExportConfig = ExportConfig()
    """The Hugging Face folder that the run ends with."""
    proof: ProofConfig = ProofConfig()
    """How the exported folder is proven against transformers."""
    sample: SampleConfig | None = None
    """A text continued before and after the training; null continues none."""
    tracking: TrackingConfig = TrackingConfig()
    """TensorBoard, Weights & Biases, MLflow, trackio."""
    watch: WatchConfig = WatchConfig()
    """How its machines are watched, and alarms."""
    target: TargetConfig = TargetConfig()
    """Where it runs."""

    @model_validator(mode="after")
    def _validate(self) -> Recipe:
        self.check()
        return self

    def check(self) -> None:
        """Raise `FieldError` for a rule between fields that is broken."""
        if self.model.preset is not None and self.data.tokenizer == "auto":
            raise FieldError(
                "data.tokenizer", "a preset brings no tokenizer; name one with folder, hub or named under it"
            )
        warmup, duration = self.schedule.warmup, self.training.duration
        if warmup.unit == duration.unit and warmup.value > duration.value:
            raise FieldError(
                "schedule.warmup",
                f"'{warmup}' is longer than training.duration ('{duration}'): the peak is never reached; "
                "shorten the one or lengthen the other",
            )
        self._check_objective()
        self._check_copies()
        self._check_nodes()
        self._check_phases()

    def _check_objective(self) -> None:
        labelled = self.data.labels is not None
        if labelled and self.objective != "classification":
            raise FieldError(
                "data.labels",
                f"{self.objective} learns no labels; take it out, or write objective: classification",
            )
        if self.objective == "classification" and not labelled:
            raise FieldError(
                "data.labels",
                "objective: classification needs it: write data.labels.field and, perhaps, values",
            )
        if self.sample is not None and self.objective != "causal-lm":
            raise FieldError("sample", f"a model of {self.objective} continues no text; take it out")

    def _check_phases(self) -> None:
        names = [phase.name for phase in self.phases]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise FieldError(f"phases.{index}.name", f"{name} is the name of an earlier phase; change it")
            try:
                phase_recipe(self, index)
            except FieldError as error:
                raise FieldError(f"phases.{index}.{error.field}", error.message) from None
        if self.phases and self.model.with_optimizer:
            raise FieldError(
                "model.with_optimizer", "each phase begins with a new optimizer; take it out, or the phases"
            )

    def _check_copies(self) -> None:
        copies, rows = self.parallel.data_parallel_size, self.training.global_batch_size
        if copies == "auto" or not self.parallel.keep_global_batch:
            return
        micro = self.training.micro_batch_size
        each = copies if micro == "auto" else copies * micro
        if rows % each:
            what = f"{copies} copies" if micro == "auto" else f"{copies} copies x micro_batch_size {micro}"
            raise FieldError(
                "parallel.data_parallel_size",
                f"training.global_batch_size ({rows}) is not a multiple of {what}; change one of them",
            )

    def _check_nodes(self) -> None:
        if self.target.least == self.target.most:
            return
        if self.parallel.data_parallel_size != "auto":
            raise FieldError(
                "parallel.data_parallel_size",
                "must be auto where target.nodes is a range: the copies follow from the nodes that there are",
            )
        if not self.parallel.keep_global_batch:
            raise FieldError(
                "target.nodes", "fewer nodes must not learn otherwise; set parallel.keep_global_batch to true"
            )


def phase_recipe(recipe: Recipe, index: int) -> Recipe:
    """The recipe as a phase changes it, without phases. Raises `FieldError`."""
    changes = {
        name: getattr(recipe, name).model_copy(update=given)
        for name, given in recipe.phases[index].changes().items()
    }
    changed = recipe.model_copy(update={**changes, "phases": []})
    changed.check()
    try:
        changed.training.check()
    except FieldError as error:
        raise FieldError(f"training.{error.field}", error.message) from None
    return changed


def phase_recipes(recipe: Recipe) -> list[tuple[str | None, Recipe]]:
    """The phases of a recipe as whole recipes, by name; the recipe itself where it has none."""
    if not recipe.phases:
        return [(None, recipe)]
    return [(phase.name, phase_recipe(recipe, index)) for index, phase in enumerate(recipe.phases)]


def global_batch_size(recipe: Recipe) -> int:
    """Rows of one optimizer update of a recipe whose copies are counted."""
    copies = recipe.parallel.data_parallel_size
    assert copies != "auto", "resolve the recipe first"
    rows = recipe.training.global_batch_size
    return rows if recipe.parallel.keep_global_batch else rows * copies
