"""A Llama model in a GGUF file, dequantised, under its Hugging Face names.

The format is described in ggml's docs/gguf.md. Converters to GGUF reorder the rows of the query and key
weights of each head (pairs of rotary dimensions side by side); here they are put back in halves.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kitae.checkpoint.pipe import TensorInfo
from kitae.errors import WeightsError
from kitae.parallel.layout import Box

_TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NO_SCALING = (None, "none")


class GgufSource:
    """The tensors of a GGUF file as fp32; one at a time is dequantised."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._reader = _open(file)
        self.metadata: dict[str, Any] = {
            name: field.contents() for name, field in self._reader.fields.items() if field.data
        }
        _require_llama(file, self.metadata)
        self._tensors: dict[str, Any] = {_name(file, tensor.name): tensor for tensor in self._reader.tensors}

    @property
    def quantisation(self) -> str:
        """The type in which most weights are stored, such as Q4_1."""
        kinds: dict[str, int] = {}
        for tensor in self._reader.tensors:
            kind = tensor.tensor_type.name
            kinds[kind] = kinds.get(kind, 0) + int(tensor.n_elements) * (len(tensor.shape) > 1)
        return max(kinds, key=kinds.__getitem__)

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Shape of every tensor; the dtype is fp32."""
        # GGUF lists the fastest dimension first.
        return {
            name: TensorInfo(tuple(int(size) for size in reversed(tensor.shape)), torch.float32)
            for name, tensor in self._tensors.items()
        }

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        """The box of a tensor, fp32; its rows are dequantised for it, or all where rows were reordered."""
        from gguf.quants import dequantize

        stored, heads = self._tensors[name], self._rotary_heads(name)
        shape = tuple(int(size) for size in reversed(stored.shape))
        box = box or Box.whole(shape)
        data, inside = stored.data, box.slices()
        if heads is None and len(shape) > 1:
            # Values are packed along the last dimension only.
            data, inside = data[inside[0]], (slice(None), *inside[1:])
            shape = (box.shape[0], *shape[1:])
        values = np.array(dequantize(data, stored.tensor_type), dtype=np.float32).reshape(shape)
        return torch.from_numpy(values if heads is None else _halves(values, heads))[inside]

    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        value = self._value
        heads, hidden = value("attention.head_count"), value("embedding_length")
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.tensors()["model.embed_tokens.weight"].shape[0],
            "hidden_size": hidden,
            "intermediate_size": value("feed_forward_length"),
            "num_hidden_layers": value("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": value("attention.head_count_kv", heads),
            "head_dim": value("attention.key_length", hidden // heads),
            "hidden_act": "silu",
            "max_position_embeddings": value("context_length"),
            "rms_norm_eps": _short(value("attention.layer_norm_rms_epsilon")),
            "rope_theta": _short(value("rope.freq_base", 10000.0)),
            "attention_bias": "model.layers.0.self_attn.q_proj.bias" in self._tensors,
            "mlp_bias": "model.layers.0.mlp.up_proj.bias" in self._tensors,
            "tie_word_embeddings": "lm_head.weight" not in self._tensors,
            **self._token_ids(),
        }

    def generation_config(self) -> dict[str, Any]:
        """The content of generation_config.json."""
        return self._token_ids()

    def _token_ids(self) -> dict[str, int]:
        kinds = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
        ids = {key: self.metadata.get(f"tokenizer.ggml.{kind}_token_id") for key, kind in kinds.items()}
        return {key: number for key, number in ids.items() if number is not None}

    def _value(self, key: str, default: Any = None) -> Any:
        value = self.metadata.get(f"llama.{key}", default)
        if value is None:
            raise WeightsError(
                f"{self.file}: llama.{key} is missing from the metadata; download the file again"
            )
        return value

    def _rotary_heads(self, name: str) -> int | None:
        """Heads of a tensor whose rows were reordered, None for all others."""
        heads = {"q_proj": "attention.head_count", "k_proj": "attention.head_count_kv"}
        kind = name.split(".")[-2]
        return self._value(heads[kind], self._value("attention.head_count")) if kind in heads else None


def _open(file: Path) -> Any:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise WeightsError(f"reading {file} needs the gguf package: pip install 'kitae[demo]'") from error
    try:
        return GGUFReader(file)
    except FileNotFoundError:
        raise WeightsError(f"{file} does not exist") from None
    except (ValueError, IndexError, OSError) as error:
        raise WeightsError(f"{file} is no whole GGUF file ({error}); download it again") from error


def _require_llama(file: Path, metadata: Mapping[str, Any]) -> None:
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise WeightsError(
            f"{file}: architecture {architecture} is not supported; kitae reads llama from GGUF"
        )
    scaling = metadata.get("llama.rope.scaling.type")
    if scaling not in _NO_SCALING:
        raise WeightsError(
            f"{file}: rope scaling {scaling} is not supported in GGUF; use the model's HF folder"
        )


def _name(file: Path, name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in _TENSORS:
        return f"{_TENSORS[stem]}.{kind}"
    head, _, part = stem.rpartition(".")
    if head.startswith("blk.") and part in _LAYER_TENSORS:
        return f"model.layers.{head.removeprefix('blk.')}.{_LAYER_TENSORS[part]}.{kind}"
    raise WeightsError(f"{file}: tensor {name} is not supported; use the model's HF folder")


def _halves(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of each head from pairs (0, d/2, 1, d/2 + 1, ...) back to their order (0, 1, 2, ...)."""
    pairs = values.reshape(heads, -1, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)


def _short(value: float) -> float:
    """The decimal that was meant by a number stored as fp32: 1e-5, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))
