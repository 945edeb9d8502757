"""A preset and the recipe's changes to it become a complete Hugging Face config.json."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from kitae import catalog
from kitae.errors import RecipeError
from kitae.recipe.base import FieldError

if TYPE_CHECKING:
    from kitae.recipe.sources import ModelConfig

HF_NAMES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "max_positions": "max_position_embeddings",
    "rope_theta": "rope_theta",
    "tie_embeddings": "tie_word_embeddings",
}
"""Field of `model.shape` -> field of config.json."""
ENCODER = "bert"
"""The model_type that is no decoder's."""


def preset_shape(model: ModelConfig) -> dict[str, Any]:
    """Every field of `model.shape` that the model has; the preset's value where the recipe gives none.

    `vocab_size` is None when it is the tokenizer's. Raises `FieldError` when the sizes do not fit each other.
    """
    config = _merged(model)
    values = {field: config[hf_name] for field, hf_name in HF_NAMES.items() if hf_name in config}
    if model.shape is None or model.shape.vocab_size is None:
        values["vocab_size"] = None
    return values


def check_shape(model: ModelConfig) -> None:
    """Raise `FieldError` when the sizes of the preset and of `model.shape` do not fit each other."""
    _merged(model)


def hf_config_of(model: ModelConfig, vocab_size: int, **token_ids: int | None) -> dict[str, Any]:
    """The complete config.json of a model that starts from a preset, for a tokenizer with `vocab_size` ids.

    `token_ids` are further fields, such as `pad_token_id`. Raises `RecipeError` when the sizes do not fit
    each other or the tokenizer.
    """
    config = _merged(model)
    rows = model.shape.vocab_size if model.shape is not None else None
    if rows is not None and rows < vocab_size:
        raise RecipeError(
            f"model.shape.vocab_size: {rows} embedding rows are fewer than the tokenizer's {vocab_size} ids; "
            "leave it out"
        )
    config["vocab_size"] = rows or vocab_size
    return {**config, **token_ids}


def _merged(model: ModelConfig) -> dict[str, Any]:
    assert model.preset is not None, "only a preset has a shape of its own"
    config = copy.deepcopy(dict(catalog.preset(model.preset).config))
    changes = model.shape.model_dump(exclude_none=True) if model.shape is not None else {}
    if config["model_type"] == ENCODER:
        return _encoder(config, changes, model.preset)
    config.update({HF_NAMES[field]: value for field, value in changes.items()})
    _check_heads(config, model.preset)
    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    if config["head_dim"] % 2:
        raise _shape_error(
            "head_dim", f"head_dim ({config['head_dim']}) is odd; rotary positions need an even one"
        )
    return config


def _encoder(config: dict[str, Any], changes: dict[str, Any], preset: str) -> dict[str, Any]:
    """An encoder's sizes; it has no other heads than query heads, no rotary positions and no own head."""
    for field, value in changes.items():
        if HF_NAMES[field] not in config:
            raise _shape_error(field, f"{field} has no meaning for {preset}, an encoder; take it out")
        config[HF_NAMES[field]] = value
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    if hidden % heads:
        raise _shape_error(
            "num_heads",
            f"hidden_size ({hidden}) is not a multiple of num_heads ({heads}) with preset {preset} and "
            "model.shape as they are; change one",
        )
    return config


def _check_heads(config: dict[str, Any], preset: str) -> None:
    hidden, heads, kv_heads = (
        config[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads")
    )
    context = f"with preset {preset} and model.shape as they are"
    if "head_dim" not in config and hidden % heads:
        raise _shape_error(
            "num_heads",
            f"hidden_size ({hidden}) is not a multiple of num_heads ({heads}) {context}; set head_dim",
        )
    if heads % kv_heads:
        raise _shape_error(
            "num_kv_heads",
            f"num_heads ({heads}) is not a multiple of num_kv_heads ({kv_heads}) {context}; change one",
        )


def _shape_error(field: str, message: str) -> FieldError:
    return FieldError(f"shape.{field}", message)
