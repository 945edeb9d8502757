"""Tiny random models of every family, as Hugging Face folders, and ways to break them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from kitae.checkpoint.export import export
from kitae.checkpoint.live import LiveSource
from kitae.checkpoint.model_folder import build_decoder, open_model

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
FAMILIES: dict[str, tuple[type[PretrainedConfig], dict[str, object]]] = {
    "llama": (LlamaConfig, {}),
    "llama-odd-heads": (LlamaConfig, {"head_dim": 12}),
    "llama-biases": (LlamaConfig, {"attention_bias": True, "mlp_bias": True}),
    "llama3": (LlamaConfig, {"rope_theta": 500000.0, "rope_scaling": LLAMA3_ROPE}),
    "mistral": (MistralConfig, {"sliding_window": 4}),
    "qwen2": (Qwen2Config, {}),
    "qwen3": (Qwen3Config, {"head_dim": 16}),
}
OLDER_ROPE = {"rope_theta": 500000.0, "rope_scaling": dict(LLAMA3_ROPE)}
"""What transformers before 5 reads of llama3's settings (a copy, for version 5 changes what it is given)."""
PROMPTS = [[1, 2, 3], [98, 0, 5, 5, 5, 7, 9, 11], [42]]


def hf_folder(folder: Path, family: str = "llama", *, max_shard_size: str = "5GB", **changes: object) -> Path:
    """Save a random model with stock transformers; biases and norms are random too, so that a swap shows."""
    config_class, own = FAMILIES[family]
    config = config_class(**{**SIZES, **own, "tie_word_embeddings": False, **changes})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return folder


def all_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor in the safetensors files of a folder, read without kitae."""
    return {name: t for file in sorted(folder.glob("*.safetensors")) for name, t in load_file(file).items()}


def assert_same(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> None:
    """Same names, dtypes and bits."""
    assert sorted(left) == sorted(right)
    for name in left:
        assert left[name].dtype == right[name].dtype
        assert torch.equal(left[name], right[name]), name


def through_kitae(folder: Path, result: Path, max_shard_bytes: int = 10**9) -> Path:
    """Folder to live model to folder."""
    model = open_model(folder)
    decoder = build_decoder(model)
    source = LiveSource(dict(decoder.named_parameters()), decoder.layouts)
    export(source, result, config=model.config, max_shard_bytes=max_shard_bytes)
    return result


def as_bin(folder: Path, *, shards: int = 1) -> Path:
    """Turn a folder of one safetensors file into pytorch_model.bin, in one piece or sharded."""
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    if shards == 1:
        torch.save(state, folder / "pytorch_model.bin")
        return folder
    weight_map = {
        name: f"pytorch_model-{i % shards + 1:05d}-of-{shards:05d}.bin" for i, name in enumerate(state)
    }
    for file in set(weight_map.values()):
        torch.save({name: state[name] for name in state if weight_map[name] == file}, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map})
    )
    return folder


def rewrite(folder: Path, tensors: Mapping[str, torch.Tensor], file: str = "model.safetensors") -> Path:
    """Replace a file's tensors."""
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, folder / file, {"format": "pt"}
    )
    return folder


def edit_json(path: Path, **changes: object) -> None:
    """Set keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
