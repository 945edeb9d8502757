"""The sizes of a small model that is cut over ranks as its large one is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LAYERS = 2
HEAD_SIZE = 16
ENCODER_HEADS = 4
SMALL_HIDDEN = 128
SMALL_LAYERS = 4

_FIELDS = {
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
}
"""Field of `model.shape` -> field of config.json."""


def is_small(config: Mapping[str, Any]) -> bool:
    """Whether a model trains here in minutes as it is."""
    return bool(config["hidden_size"] <= SMALL_HIDDEN and config["num_hidden_layers"] <= SMALL_LAYERS)


def small_shape(config: Mapping[str, Any], ranks: int, small_ranks: int) -> dict[str, int]:
    """Sizes for `model.shape`; `ranks` share a copy of the large model, and `small_ranks` of the small one.

    A decoder keeps how many query heads there are to a key-value head, and whether key-value heads lie on
    several ranks; both keep how much wider the inner layer is.
    """
    decoder = "num_key_value_heads" in config
    heads = decoder_heads(config, ranks, small_ranks) if decoder else _encoder_heads(config, small_ranks)
    hidden = heads["num_heads"] * HEAD_SIZE
    inner = hidden * config["intermediate_size"] / config["hidden_size"]
    step = HEAD_SIZE * small_ranks
    return {
        "num_layers": min(config["num_hidden_layers"], LAYERS),
        "hidden_size": hidden,
        "intermediate_size": max(step, round(inner / step) * step),
        **heads,
        **({"head_dim": HEAD_SIZE} if decoder else {}),
    }


def decoder_heads(config: Mapping[str, Any], ranks: int, small_ranks: int) -> dict[str, int]:
    """Query and key-value heads."""
    kv_heads = config["num_key_value_heads"]
    group = config["num_attention_heads"] // kv_heads
    copied = ranks > kv_heads and small_ranks > 1 and group % 2 == 0
    # Two ranks for a key-value head: the least that is a copy.
    few = small_ranks // 2 if copied else max(small_ranks, min(kv_heads, 2))
    return {"num_heads": few * group, "num_kv_heads": few}


def _encoder_heads(config: Mapping[str, Any], small_ranks: int) -> dict[str, int]:
    heads = min(config["num_attention_heads"], ENCODER_HEADS)
    return {"num_heads": max(small_ranks, heads - heads % small_ranks)}


def small_config(config: Mapping[str, Any], ranks: int, small_ranks: int) -> dict[str, Any]:
    """A config.json like a large one's, with small sizes; without the tokenizer's vocabulary."""
    sizes = small_shape(config, ranks, small_ranks)
    left_out = {"vocab_size", "torch_dtype", "dtype", "_name_or_path", "layer_types", "max_window_layers"}
    tokens = {name for name in config if name.endswith("_token_id")}
    kept = {name: value for name, value in config.items() if name not in left_out | tokens}
    return {**kept, **{_FIELDS[field]: value for field, value in sizes.items()}}
