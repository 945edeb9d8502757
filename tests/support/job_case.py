"""A tiny pretrained model, tokenizer and text with a recipe around them, and the command line to run it."""

from __future__ import annotations

import random
from pathlib import Path

import torch
import yaml
from tiny_tokenizer import train_backend, write_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from kitae.cli.main import main

WORDS = ["kitae", "forges", "steel", "and", "models", "from", "raw", "text", "slowly", "in", "the", "night"]


def write_text(path: Path, documents: int, seed: int) -> None:
    """Documents of one sentence each, separated by blank lines."""
    draw = random.Random(seed)
    lines = [" ".join(draw.choice(WORDS) for _ in range(20)) + "." for _ in range(documents)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def write_model(folder: Path, text: Path) -> None:
    """A random two-layer Llama in bf16 with a byte-level BPE, as stock transformers saves it."""
    tokenizer = train_backend(text.read_text(encoding="utf-8").splitlines())
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<b>", "eos_token": "<e>"}
    write_tokenizer(folder, tokenizer.to_str(), settings)


def recipe_values(**changes: object) -> dict[str, object]:
    """A recipe of six short steps."""
    return {
        "kitae": 1,
        "name": "tiny",
        "seed": 3,
        "model": {"folder": "model"},
        "data": {
            "train": [{"path": "text/train.txt", "document": "paragraph"}],
            "heldout": {"sources": [{"path": "text/heldout.txt", "document": "paragraph"}]},
            "sequence_length": 32,
            "workers": 0,
        },
        "optimizer": {"learning_rate": 0.01},
        "training": {"duration": "6 steps", "global_batch_size": 4, "micro_batch_size": 2},
        "proof": {"prompts": ["kitae forges", "in the night"]},
        "sample": {"prompt": "kitae", "max_new_tokens": 5},
        **changes,
    }


def write_case(folder: Path, **changes: object) -> Path:
    """Model, text and recipe in `folder`; the recipe's path."""
    write_text(folder / "text/train.txt", 80, seed=1)
    write_text(folder / "text/heldout.txt", 12, seed=2)
    write_model(folder / "model", folder / "text/train.txt")
    return write_recipe(folder, **changes)


def write_recipe(folder: Path, **changes: object) -> Path:
    """The recipe alone."""
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe_values(**changes)), encoding="utf-8")
    return path


def kitae(*words: str | Path) -> int:
    """Run a command line in this process; its exit code."""
    return main([str(word) for word in words])
