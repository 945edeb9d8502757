"""Settings that have no effect, or not the one that they seem to have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from kitae.recipe.base import Duration
from kitae.recipe.masking import MaskingConfig
from kitae.recipe.model_shape import preset_shape
from kitae.recipe.parallel import ParallelConfig
from kitae.recipe.schema import Recipe
from kitae.recipe.sources import DataConfig, SourceConfig
from kitae.recipe.target import TargetConfig, seconds_of
from kitae.recipe.training import CheckpointConfig, EvaluationConfig, ScheduleConfig
from kitae.recipe.watching import AlarmConfig

_HELDOUT = "has no effect without data.heldout: there is nothing to evaluate on"


def warnings_of(recipe: Recipe) -> Iterator[str]:
    """Each as `path: why`, for a recipe whose automatic values are resolved."""
    for check in _CHECKS:
        yield from check(recipe)


def _heldout(recipe: Recipe) -> Iterator[str]:
    if recipe.data.heldout is not None:
        return
    if recipe.checkpoint.keep_best:
        yield f"checkpoint.keep_best: {_HELDOUT}"
    for field in ("every", "max_rows"):
        if getattr(recipe.evaluation, field) != EvaluationConfig.model_fields[field].get_default():
            yield f"evaluation.{field}: {_HELDOUT}"


def _intervals(recipe: Recipe) -> Iterator[str]:
    for path, every in (
        ("evaluation.every", recipe.evaluation.every),
        ("checkpoint.every", recipe.checkpoint.every),
    ):
        if isinstance(every, Duration) and _longer(every, recipe.training.duration):
            yield f"{path}: '{every}' is longer than training.duration ('{recipe.training.duration}')"
    if (
        recipe.checkpoint.every == "never"
        and recipe.checkpoint.keep != CheckpointConfig.model_fields["keep"].default
    ):
        yield "checkpoint.keep: has little effect while checkpoint.every is never"


def _longer(one: Duration, other: Duration) -> bool:
    return one.unit == other.unit and one.value > other.value


def _optimizer(recipe: Recipe) -> Iterator[str]:
    if recipe.optimizer.max_trust_ratio is not None and recipe.optimizer.name != "lamb":
        yield f"optimizer.max_trust_ratio: has no effect with optimizer.name {recipe.optimizer.name}"


def _schedule(recipe: Recipe) -> Iterator[str]:
    if (
        recipe.schedule.kind == "constant"
        and recipe.schedule.min_ratio != ScheduleConfig.model_fields["min_ratio"].default
    ):
        yield "schedule.min_ratio: has no effect with schedule.kind constant, which does not decay"


def _sources(recipe: Recipe) -> Iterator[str]:
    heldout = recipe.data.heldout.sources if recipe.data.heldout is not None else None
    for path, sources in (("data.train", recipe.data.train), ("data.heldout.sources", heldout or [])):
        for index, source in enumerate(sources):
            yield from (f"{path}.{index}.{warning}" for warning in _source(source))


def _source(source: SourceConfig) -> Iterator[str]:
    kind = "datasets" if source.hub is not None else source.format
    default = {name: field.default for name, field in SourceConfig.model_fields.items()}
    if kind not in ("auto", "text") and source.document != default["document"]:
        yield f"document: has no effect on {kind}, where a document is one record"
    if kind == "text" and source.text_field != default["text_field"]:
        yield "text_field: has no effect on text files, which have no fields"
    if kind not in ("auto", "datasets") and source.split != default["split"]:
        yield f"split: has no effect on {kind} files, which have no splits"


_OF_PACKING = ("bos", "eos", "document_mask", "remainder")


def _objective(recipe: Recipe) -> Iterator[str]:
    masking = recipe.data.masking
    if recipe.objective != "masked-lm" and masking is not None:
        yield f"data.masking: has no effect with objective {recipe.objective}, which hides nothing"
    for name in _OF_PACKING if recipe.objective != "causal-lm" else ():
        if getattr(recipe.data, name) != DataConfig.model_fields[name].default:
            why = "whose rows end with a document"
            yield f"data.{name}: has no effect with objective {recipe.objective}, {why}"
    if recipe.objective == "masked-lm" and masking is not None:
        yield from _masking(masking, recipe.data.sequence_length)


def _masking(masking: MaskingConfig, size: int) -> Iterator[str]:
    if masking.replace + masking.random == 0:
        yield "data.masking.replace: with random 0 as well nothing is hidden, and the model can copy"
    most = masking.predictions(size)
    if most < math.floor(masking.probability * size):
        yield (
            f"data.masking.max_predictions: {most} of {size} positions are fewer than probability "
            f"{masking.probability:g} asks for"
        )


def _positions(recipe: Recipe) -> Iterator[str]:
    if recipe.model.preset is None:
        return
    longest = preset_shape(recipe.model)["max_positions"]
    if recipe.data.sequence_length > longest:
        yield (
            f"data.sequence_length: {recipe.data.sequence_length} tokens exceed the preset's {longest} "
            "positions; raise model.shape.max_positions with it"
        )


def _parallel(recipe: Recipe) -> Iterator[str]:
    parallel = recipe.parallel
    if parallel.sequence_parallel and parallel.tensor_parallel_size == 1:
        yield "parallel.sequence_parallel: has no effect with tensor_parallel_size 1"
    if parallel.data_parallel_size != 1:
        return
    if parallel.zero1 is True:
        yield "parallel.zero1: has no effect with one copy of the model (data_parallel_size 1)"
    if parallel.reduce_dtype != ParallelConfig.model_fields["reduce_dtype"].default:
        yield "parallel.reduce_dtype: has no effect with one copy of the model (data_parallel_size 1)"


def _dropout(recipe: Recipe) -> Iterator[str]:
    if recipe.training.dropout not in ("auto", 0.0) and recipe.objective == "causal-lm":
        yield "training.dropout: has no effect on decoders, which have no such layers"


_OF_JOBS = (
    *("partition", "account", "qos", "reservation", "constraint", "gres", "time_limit", "extra", "setup"),
    *("exclusive", "signal_before_s", "max_attempts", "wait_limit"),
)


def _target(recipe: Recipe) -> Iterator[str]:
    target = recipe.target
    unused = {"local": (*_OF_JOBS, "host", "folder"), "slurm": ("host", "folder"), "ssh": ()}[target.kind]
    for name in unused:
        if getattr(target, name) != TargetConfig.model_fields[name].get_default():
            yield f"target.{name}: has no effect with target.kind {target.kind}"
    if target.time_limit is not None and seconds_of(target.time_limit) <= target.signal_before_s:
        yield (
            f"target.signal_before_s: {target.signal_before_s} s leave nothing of the time limit "
            f"({target.time_limit}) to train in"
        )


def _watch(recipe: Recipe) -> Iterator[str]:
    watch = recipe.watch
    if not watch.record and watch.alarms != AlarmConfig():
        yield "watch.alarms: has no effect with watch.record false: nothing is watched"
    if watch.alarms.budget_usd is not None and recipe.target.price_per_node_hour is None:
        yield "watch.alarms.budget_usd: has no effect without target.price_per_node_hour"


_CHECKS: tuple[Callable[[Recipe], Iterator[str]], ...] = (
    _heldout,
    _intervals,
    _optimizer,
    _schedule,
    _sources,
    _objective,
    _positions,
    _parallel,
    _dropout,
    _target,
    _watch,
)
