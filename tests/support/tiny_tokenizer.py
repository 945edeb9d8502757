"""A tiny real tokenizer, and how its folder is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "Gravity is the curvature of space and time.",
    "今日は天気がいいので、散歩に行きます。",
    "がぎぐげご ざじずぜぞ ばびぶべぼ ぱぴぷぺぽ",
    "def add(a, b):\n    return a + b",
    "Numbers such as 1, 23 and 456 are text as well.",
]


def train_backend(sentences: Sequence[str] = SENTENCES * 3) -> Tokenizer:
    """A byte-level BPE of at most 400 pieces."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<b>", "<e>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(sentences, trainer)
    return backend


def write_tokenizer(folder: Path, text: str, config: dict | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(text, "utf-8")
    named = {"bos_token": "<b>", "eos_token": "<e>"} if config is None else config
    (folder / "tokenizer_config.json").write_text(json.dumps(named), "utf-8")
    return folder
