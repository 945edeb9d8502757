"""What a scaled-down recipe reads where its own text, tokenizer and weights are not here.

Each is told by values alone, so that its folder's name follows from them; `kitae.small` makes the folders.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

FORMAT = 1
"""Raised when the same values would be made into other files."""
Language = Literal["english", "japanese"]


@dataclass(frozen=True)
class Pieces:
    """A tokenizer of some thousand pieces, over the small text."""

    kind: Literal["bpe", "wordpiece", "mecab"]
    dictionary: str | None = None
    """Of mecab: the dictionary that words are cut by."""


@dataclass(frozen=True)
class Prose:
    """The small text: `train.txt` and `heldout.txt`, blocks between blank lines."""

    language: Language


@dataclass(frozen=True)
class Reviews:
    """Small made-up reviews with labels: `train.jsonl` and `heldout.jsonl`."""

    language: Language
    text_field: str
    label_field: str
    pair_field: str | None
    classes: tuple[tuple[str, ...], ...]
    """By class: the labels that mean it."""
    dropped: tuple[str, ...] = ()
    """Labels of rows that the recipe leaves out."""


@dataclass(frozen=True)
class Shards:
    """The small text as HDF5 shards of masked rows: `train_training_0.hdf5` and `heldout_training_0.hdf5`."""

    length: int
    """Positions in a row."""
    predictions: int
    """Most predictions in a row."""
    pieces: Pieces


@dataclass(frozen=True)
class SmallModel:
    """A Hugging Face folder with random weights and a tokenizer."""

    config: str
    """Its config.json but for the size of the vocabulary and ids of tokens, as JSON with sorted keys."""
    dtype: Literal["fp32", "bf16"]
    pieces: Pieces


Input = Pieces | Prose | Reviews | Shards | SmallModel


def folder_name(made: Input) -> str:
    """Name of the folder of an input: its kind and a hash of its values."""
    kind = type(made).__name__.lower()
    return f"{kind}-{hashlib.sha256(f'{FORMAT} {made!r}'.encode()).hexdigest()[:16]}"
