"""A tiny random decoder with a real tokenizer, as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

import torch
from tiny_tokenizer import train_backend, write_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 420
"""Rows of the embedding; the tokenizer has 400 tokens at most."""


def write_language_model(folder: Path, **changes: object) -> Path:
    """A Llama of two layers, 64 positions and two KV heads, without a chat template."""
    config = LlamaConfig(
        **{
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
            "eos_token_id": 1,
            "bos_token_id": None,
            **changes,
        }
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    return write_tokenizer(folder, train_backend().to_str())
