"""The configuration of a decoder, read from and written as a Hugging Face config.json.

One class holds what Llama 2/3/3.1/3.2, SmolLM2, Mistral, Qwen2 and Qwen3 differ in. A setting that would
change the numbers and that kitae does not compute stops with the field, its value and what is supported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kitae.errors import WeightsError
from kitae.model.families import FAMILIES, Family
from kitae.model.fields import number_of, require_supported, size_of
from kitae.model.rope_config import RopeConfig

REQUIRED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
MUST_BE: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "attention_dropout": (0,),
    "quantization_config": (),
}
"""Fields whose other values would need other arithmetic; leaving one out, or null, is always fine."""


@dataclass(frozen=True)
class DecoderConfig:
    """Shape and arithmetic of one decoder; sizes are of the full model, whatever the tensor-parallel size."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: RopeConfig
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norm: bool
    windows: tuple[int | None, ...]
    """Per layer, how many positions a token sees, itself included; None sees all before it."""
    tie_word_embeddings: bool
    initializer_range: float = 0.02
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    pad_token_id: int | None = None

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> DecoderConfig:
        """Read what config.json holds; WeightsError names a field that is missing, wrong or unsupported."""
        family = _family(config)
        require_supported(config, MUST_BE)
        size = {name: size_of(config, name) for name in REQUIRED}
        values = {**family.defaults, **config}
        heads = size["num_attention_heads"]
        positions = size_of(values, "max_position_embeddings")
        return cls(
            model_type=str(config["model_type"]),
            vocab_size=size["vocab_size"],
            hidden_size=size["hidden_size"],
            intermediate_size=size["intermediate_size"],
            num_layers=size["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=_kv_heads(values, heads),
            head_dim=_head_dim(values, size["hidden_size"], heads),
            max_position_embeddings=positions,
            rms_norm_eps=number_of(values, "rms_norm_eps"),
            rope=RopeConfig.from_hf(config, positions),
            **family.switches(values),
            windows=family.windows(values),
            tie_word_embeddings=bool(values["tie_word_embeddings"]),
            initializer_range=number_of(values, "initializer_range"),
            bos_token_id=values.get("bos_token_id"),
            eos_token_ids=_ids(values.get("eos_token_id")),
            pad_token_id=values.get("pad_token_id"),
        )

    def to_hf(self) -> dict[str, Any]:
        """A complete config.json that transformers loads as the same model."""
        family = FAMILIES[self.model_type]
        return {
            "architectures": [family.architecture],
            "model_type": self.model_type,
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.max_position_embeddings,
            "rms_norm_eps": self.rms_norm_eps,
            **self.rope.to_hf(),
            **family.written(self),
            "tie_word_embeddings": self.tie_word_embeddings,
            "initializer_range": self.initializer_range,
            "attention_dropout": 0.0,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": self.eos_token_ids[0]
            if len(self.eos_token_ids) == 1
            else list(self.eos_token_ids) or None,
            "pad_token_id": self.pad_token_id,
        }


def _family(config: Mapping[str, Any]) -> Family:
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise WeightsError(
            f"config.json: model_type: {kind} is not supported; supported: {', '.join(FAMILIES)}"
        )
    return FAMILIES[kind]


def _kv_heads(values: Mapping[str, Any], num_heads: int) -> int:
    if values.get("num_key_value_heads") is None:
        return num_heads
    kv_heads = size_of(values, "num_key_value_heads")
    if num_heads % kv_heads:
        raise WeightsError(
            f"config.json: num_attention_heads: {num_heads} is no multiple of num_key_value_heads {kv_heads}"
        )
    return kv_heads


def _head_dim(values: Mapping[str, Any], hidden_size: int, num_heads: int) -> int:
    if values.get("head_dim") is not None:
        head_dim = size_of(values, "head_dim")
    elif hidden_size % num_heads:
        raise WeightsError(
            f"config.json: hidden_size: {hidden_size} is no multiple of num_attention_heads ({num_heads}), "
            "and there is no head_dim"
        )
    else:
        head_dim = hidden_size // num_heads
    if head_dim % 2:
        raise WeightsError(f"config.json: head_dim: {head_dim} is odd; rotary positions need pairs")
    return head_dim


def _ids(value: Any) -> tuple[int, ...]:
    ids = () if value is None else value if isinstance(value, (list, tuple)) else (value,)
    if not all(isinstance(one, int) for one in ids):
        raise WeightsError(f"config.json: eos_token_id: {value!r} where an id or a list of ids is needed")
    return tuple(ids)
