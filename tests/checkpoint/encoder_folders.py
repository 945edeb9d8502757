"""Tiny BERTs of every head as Hugging Face folders, as transformers and as older programs write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from hf_case import all_tensors, rewrite
from tiny_encoders import reference

from kitae.checkpoint.export import export
from kitae.checkpoint.live import LiveSource
from kitae.checkpoint.model_folder import build_model, open_model

PROMPTS = [[1, 2, 3], [98, 4, 5, 5, 5, 7, 9, 11], [42]]


def bert_folder(folder: Path, case: str = "mlm", **changes: object) -> Path:
    """Save a random BERT with stock transformers."""
    reference(case, **changes).save_pretrained(folder)
    return folder


def through_kitae(folder: Path, result: Path) -> Path:
    """Folder to live model to folder."""
    model = open_model(folder)
    encoder = build_model(model)
    source = LiveSource(dict(encoder.named_parameters()), encoder.layouts)
    export(source, result, config=model.config)
    return result


def renamed(folder: Path, old: Mapping[str, str]) -> Path:
    """Replace parts of the names of a folder's tensors."""
    tensors = {}
    for name, tensor in all_tensors(folder).items():
        for part, other in old.items():
            name = name.replace(part, other)
        tensors[name] = tensor
    return rewrite(folder, tensors)


def with_tensors(folder: Path, **more: torch.Tensor) -> Path:
    """Add tensors; `__` in their names is a dot."""
    own = {name.replace("__", "."): tensor for name, tensor in more.items()}
    return rewrite(folder, {**all_tensors(folder), **own})


def config_of(folder: Path) -> dict[str, object]:
    """Content of config.json."""
    return dict(json.loads((folder / "config.json").read_text()))
