"""A recipe with a model and a tokenizer beside it, for what is tried as a user would."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

_WORDS = ("kitae", "forges", "steel", "and", "models", "from", "raw", "text", "slowly", "in", "the", "night")


def write_recipe(folder: Path, backend: str) -> Path:
    """Recipe, tokenizer and text in a folder; the recipe's path."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_tokenizer(folder / "tokenizer")
    lines = [" ".join(_WORDS[(row * 7 + word * 5) % len(_WORDS)] for word in range(24)) for row in range(200)]
    (folder / "text.txt").write_text("\n\n".join(f"{line}." for line in lines) + "\n", encoding="utf-8")
    recipe = {
        "kitae": 1,
        "name": "chip-test-precompile",
        "runs": str(folder / "runs"),
        "model": {"preset": "llama-tiny"},
        "data": {
            "train": [{"path": "text.txt", "document": "paragraph"}],
            "heldout": {"fraction": 0.1},
            "tokenizer": {"folder": "tokenizer"},
            "sequence_length": 128,
            "workers": 0,
        },
        "training": {"duration": "4 steps", "global_batch_size": 4, "micro_batch_size": 2},
        "target": {"backend": backend},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return path


def _write_tokenizer(folder: Path) -> None:
    """A byte-level one: each byte is a token, so that nothing has to be learned or fetched."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = {name: number for number, name in enumerate(["<b>", "<e>", *alphabet])}
    made = Tokenizer(models.BPE(vocab=names, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<b>", "<e>"])
    folder.mkdir(exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<b>", "eos_token": "<e>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
