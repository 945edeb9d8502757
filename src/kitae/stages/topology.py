"""Whether a training can be spread as the recipe asks, found out before any process is started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kitae.errors import RecipeError, WeightsError
from kitae.recipe.schema import Recipe

if TYPE_CHECKING:
    from kitae.backend.base import Backend
    from kitae.model.tables import ModelConfig

LARGEST_DEGREE = 64
"""Up to where tensor-parallel sizes are tried to name those that a model allows."""


def world_size(recipe: Recipe) -> int:
    """Processes of the training."""
    copies = recipe.parallel.data_parallel_size
    assert copies != "auto", "the recipe is resolved"
    return copies * recipe.parallel.tensor_parallel_size


def check_cut(recipe: Recipe, hf_config: Mapping[str, Any]) -> None:
    """Raise `RecipeError` when the model, or its tokens, cannot be cut over the tensor-parallel ranks."""
    from kitae.model.tables import parse_config

    size = recipe.parallel.tensor_parallel_size
    config = parse_config(hf_config)
    reason = _obstacle(config, size)
    if reason is not None:
        allowed = [str(degree) for degree in allowed_degrees(config) if degree > 1]
        raise RecipeError(
            f"parallel.tensor_parallel_size: {size} does not fit this model: {reason}; up to "
            f"{LARGEST_DEGREE} it allows {', '.join(['1', *allowed])}"
        )
    if recipe.parallel.sequence_parallel:
        _check_tokens(recipe, size)


def check_rows(phase: str | None, recipe: Recipe, hf_config: Mapping[str, Any]) -> None:
    """Raise `RecipeError` when an encoder cannot read the rows of a phase: too long, or pairs."""
    from kitae.model.encoder_config import EncoderConfig
    from kitae.model.tables import parse_config

    config = parse_config(hf_config)
    if not isinstance(config, EncoderConfig):
        return
    of_phase = "" if phase is None else f"phase {phase}: "
    config.check_length(recipe.data.sequence_length, f"{of_phase}data.sequence_length")
    pairing = _pairing(recipe)
    if pairing is not None and config.type_vocab_size < 2:
        raise RecipeError(
            f"{of_phase}{pairing}: the model has one token type (type_vocab_size) and reads no pairs of "
            "texts; change the one or the other"
        )


def _pairing(recipe: Recipe) -> str | None:
    """The setting that makes the rows of an encoder pairs."""
    labels = recipe.data.labels
    if labels is not None:
        return None if labels.text_pair_field is None else "data.labels.text_pair_field"
    alone = recipe.data.masking is not None and not recipe.data.masking.next_sentence
    return None if alone else "data.masking.next_sentence"


def allowed_degrees(config: ModelConfig) -> list[int]:
    """Tensor-parallel sizes up to `LARGEST_DEGREE` that a model can be cut for."""
    return [size for size in range(1, LARGEST_DEGREE + 1) if _obstacle(config, size) is None]


def _obstacle(config: ModelConfig, tp_size: int) -> str | None:
    """Why the layout table has no cut for this size; one layer tells, they are alike."""
    from kitae.model.tables import table_of

    try:
        table_of(replace(config, num_layers=1), True)(tp_size, 0)
    except WeightsError as error:
        return str(error).partition("; ")[0]
    return None


def _check_tokens(recipe: Recipe, tp_size: int) -> None:
    length = recipe.data.sequence_length
    for path, rows in (
        ("training.micro_batch_size", recipe.training.micro_batch_size),
        ("evaluation.micro_batch_size", recipe.evaluation.micro_batch_size),
    ):
        assert rows != "auto", "the recipe is resolved"
        if rows * length % tp_size:
            raise RecipeError(
                f"parallel.sequence_parallel: {path} ({rows}) x data.sequence_length ({length}) = "
                f"{rows * length} tokens cannot be shared out to {tp_size} tensor-parallel ranks; make one "
                f"of them a multiple of {tp_size}, or turn it off"
            )


def check_devices(processes: int, backend: type[Backend]) -> Iterator[str]:
    """Warnings about how many devices are used; `RecipeError` when there are too few."""
    devices = backend.devices()
    if processes > devices and backend.exclusive:
        raise RecipeError(
            f"parallel: {processes} processes (data_parallel_size x tensor_parallel_size) need as many "
            f"{backend.name} devices, and there are {devices}; lower one of them"
        )
    if processes > devices:
        yield f"parallel: {processes} processes share {devices} cores; fewer would not be slower"
    if processes < devices and backend.exclusive:
        yield (
            f"parallel: {devices - processes} of {devices} devices idle; raise data_parallel_size or "
            "tensor_parallel_size to use them"
        )
