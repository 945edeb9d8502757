"""Tiny GGUF files, written with the gguf package as converters write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from hf_case import SIZES, all_tensors
from tokenizers import pre_tokenizers

SPECIAL = ["<|end|>", "<|begin|>"]
MERGES = ["t h", "th e", "Ġ the", "Ġ Ġ"]
NAMES = {
    "embed_tokens": "token_embd",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
    "norm": "output_norm",
}


def vocabulary() -> list[str]:
    """Two special tokens, the bytes, and what the merges make: 262 tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return [*SPECIAL, *alphabet, *(merge.replace(" ", "") for merge in MERGES)]


def gguf_name(name: str) -> str:
    parts = name.split(".")
    layer = f"blk.{parts[2]}." if "layers" in parts else ""
    return f"{layer}{NAMES[parts[-2]]}.{parts[-1]}"


def converted(name: str, tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Query and key rows in pairs: row i and row i + d/2 of a head side by side."""
    heads = {"q_proj": SIZES["num_attention_heads"], "k_proj": SIZES["num_key_value_heads"]}.get(
        name.split(".")[-2]
    )
    if heads is None:
        return tensor.numpy()
    per_head = tensor.shape[0] // heads
    order = [
        h * per_head + half * per_head // 2 + i
        for h in range(heads)
        for i in range(per_head // 2)
        for half in (0, 1)
    ]
    return tensor[order].numpy()


def write_gguf(
    file: Path,
    folder: Path,
    *,
    quantise: bool = False,
    pre: str = "smollm",
    add_bos: bool = False,
    **metadata: str,
) -> Path:
    """The model of a Hugging Face folder as GGUF; `quantise` stores the MLP weights as Q8_0."""
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(SIZES["num_hidden_layers"])
    writer.add_context_length(64)
    writer.add_embedding_length(SIZES["hidden_size"])
    writer.add_feed_forward_length(SIZES["intermediate_size"])
    writer.add_head_count(SIZES["num_attention_heads"])
    writer.add_head_count_kv(SIZES["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    for key, value in metadata.items():
        writer.add_string(key.replace("__", "."), value)
    add_tokenizer(writer, pre, add_bos)
    for name, tensor in all_tensors(folder).items():
        values = converted(name, tensor)
        if quantise and ".mlp.gate" in name:
            packed = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(gguf_name(name), packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(gguf_name(name), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def add_tokenizer(writer: gguf.GGUFWriter, pre: str, add_bos: bool) -> None:
    tokens = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_add_bos_token(add_bos)
    writer.add_chat_template("{{ messages[0]['content'] }}")
