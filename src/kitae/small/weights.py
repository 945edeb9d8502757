"""A small model's Hugging Face folder: config.json, random weights, and its tokenizer's files."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kitae.model.tables import parse_config, table_of
from kitae.parallel.layout import Initial, Shape
from kitae.recipe.small_inputs import SmallModel
from kitae.small.pieces import token_ids, tokenizer_files

_STD = 0.02
_DTYPES = {"fp32": ("float32", "F32"), "bf16": ("bfloat16", "BF16")}
"""Names in config.json and in the file."""


def model_files(made: SmallModel) -> dict[str, bytes]:
    """The files of the folder, by name."""
    config = {**json.loads(made.config), **token_ids(made.pieces)}
    tensors = {
        name: (shape, _bytes(_drawn(number, shape, initial), made.dtype))
        for number, (name, (shape, initial)) in enumerate(_full_tensors(config).items())
    }
    config["torch_dtype"], code = _DTYPES[made.dtype]
    content = json.dumps(config, indent=2, sort_keys=True) + "\n"
    weights = _safetensors(tensors, code)
    return {"config.json": content.encode(), "model.safetensors": weights, **tokenizer_files(made.pieces)}


def _safetensors(tensors: dict[str, tuple[Shape, bytes]], code: str) -> bytes:
    """A file as the format lays it out: length of the header, the header, the values one behind the other.

    By hand, as `safetensors.serialize` takes its values otherwise in each release.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *(data for _, data in tensors.values())])


def _full_tensors(config: dict[str, Any]) -> dict[str, tuple[Shape, Initial]]:
    """The tensors of the whole model, as one rank holds them."""
    tied = bool(parse_config(config).tie_word_embeddings)
    return {
        piece.tensor: (piece.full_shape, layout.initial)
        for layout in table_of(config, tied)(1, 0)
        for piece in layout.pieces
    }


def _drawn(number: int, shape: Shape, initial: Initial) -> NDArray[np.float32]:
    """Values of a tensor; drawn ones follow from its number alone."""
    if initial == "normal":
        drawn = np.random.default_rng(number).standard_normal(shape, np.float32)
        return np.asarray(drawn * np.float32(_STD), np.float32)
    return np.full(shape, {"ones": 1, "zeros": 0}[initial], np.float32)


def _bytes(values: NDArray[np.float32], dtype: str) -> bytes:
    """Little-endian; bf16 is the upper half of fp32, rounded to the nearest, ties to even."""
    if dtype == "fp32":
        return values.astype("<f4").tobytes()
    bits = values.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype("<u2").tobytes()
