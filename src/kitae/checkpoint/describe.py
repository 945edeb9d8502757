"""What weights on the disk are, in words and numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any

from kitae.checkpoint.model_folder import EMBEDDING, ModelFolder
from kitae.checkpoint.opened import Opened, Optimizer
from kitae.checkpoint.pipe import TensorInfo, TensorSource
from kitae.errors import WeightsError
from kitae.model.architecture import ModelConfig, architecture_of
from kitae.model.encoder_config import EncoderConfig

_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))


def describe(opened: Opened) -> dict[str, Any]:
    """Format, topology, parameters, dtypes, head, rope, vocabulary and step, as JSON values."""
    model, problem = _model(opened)
    tensors = opened.source.tensors()
    optimizer, doubt = _optimizer(opened)
    facts: dict[str, Any] = {
        "path": str(opened.path),
        "format": opened.kind,
        "title": opened.title,
        "topology": asdict(opened.topology) if opened.topology else None,
        "files": len(opened.files),
        "tensors": len(tensors),
        "parameters": _parameters(model.source if model else opened.source, model),
        "bytes": sum(info.nbytes for info in tensors.values()),
        "dtypes": _dtypes(tensors),
        "head": _head(model, tensors),
        "class": architecture_of(model.model_config).class_name(model.model_config) if model else None,
        "labels": _labels(model),
        "config": opened.config_from if opened.config is not None else None,
        "model": _shape(model.model_config) if model else None,
        "rope": _rope(model),
        "vocabulary": _vocabulary(opened, model),
        "step": optimizer.step if optimizer else opened.step,
        "optimizer": _kinds(optimizer),
        "notes": [*(model.notes if model else opened.notes), *filter(None, (problem, doubt))],
    }
    return facts


def lines(facts: Mapping[str, Any]) -> list[str]:
    """The facts for a person, one a line; what is not known is left out."""
    shown = {
        "format": facts["title"],
        "topology": _topology_text(facts["topology"]),
        "model": _model_text(facts["model"]),
        "parameters": f"{_short(facts['parameters'])} ({facts['parameters']:,}), {facts['tensors']} tensors",
        "dtypes": ", ".join(f"{name} ({count} tensors)" for name, count in facts["dtypes"].items()),
        "size": f"{facts['bytes']:,} bytes",
        "class": facts["class"],
        "head": facts["head"],
        "labels": ", ".join(facts["labels"] or ()),
        "rope": _rope_text(facts["rope"]),
        "vocabulary": _vocabulary_text(facts["vocabulary"]),
        "step": None if facts["step"] is None else str(facts["step"]),
        "optimizer": ", ".join(facts["optimizer"]),
        "config": facts["config"],
    }
    rows = [f"{name:<11} {value}" for name, value in shown.items() if value]
    return [facts["path"], *(f"  {row}" for row in rows), *(f"  note: {note}" for note in facts["notes"])]


def _model(opened: Opened) -> tuple[ModelFolder | None, str | None]:
    """The checked model, or what is wrong with it: a description ends at nothing."""
    try:
        return opened.model(), None
    except WeightsError as error:
        return None, str(error)


def _optimizer(opened: Opened) -> tuple[Optimizer | None, str | None]:
    if opened.optimizer is None:
        return None, None
    try:
        return opened.optimizer(), None
    except WeightsError as error:
        return None, f"its optimizer state cannot be read: {error}"


def _kinds(optimizer: Optimizer | None) -> list[str]:
    if optimizer is None:
        return []
    return [*optimizer.moments, *(["fp32 masters"] if optimizer.masters is not None else [])]


def _parameters(source: TensorSource, model: ModelFolder | None) -> int:
    tensors = source.tensors()
    names = model.names if model else tensors
    return sum(prod(tensors[name].shape) for name in names)


def _dtypes(tensors: Mapping[str, TensorInfo]) -> dict[str, int]:
    found: dict[str, int] = {}
    for info in tensors.values():
        name = str(info.dtype).removeprefix("torch.")
        found[name] = found.get(name, 0) + 1
    return found


def _head(model: ModelFolder | None, tensors: Mapping[str, TensorInfo]) -> str | None:
    head = architecture_of(model.model_config).head(model.model_config) if model else None
    if model is None or head is None:
        return None
    if not model.tied:
        return "untied"
    return "tied to the embedding" + (", stored twice" if head in tensors else "")


def _labels(model: ModelFolder | None) -> list[str] | None:
    """Names of a classifier's classes, by number."""
    if model is None or not isinstance(model.model_config, EncoderConfig):
        return None
    if model.model_config.head != "classification":
        return None
    names = model.config.get("id2label") or {}
    return [str(names.get(str(one), f"LABEL_{one}")) for one in range(model.model_config.num_labels)]


def _rope(model: ModelFolder | None) -> dict[str, Any] | None:
    rope = getattr(model.model_config, "rope", None) if model else None
    return None if rope is None else vars(rope)


def _shape(config: ModelConfig) -> dict[str, Any]:
    return {
        "model_type": config.model_type,
        "layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "heads": config.num_heads,
        "kv_heads": getattr(config, "num_kv_heads", config.num_heads),
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_position_embeddings,
    }


def _vocabulary(opened: Opened, model: ModelFolder | None) -> dict[str, Any]:
    name = architecture_of(model.model_config).embedding(model.model_config) if model else EMBEDDING
    tensors = (model or opened).source.tensors()
    return {
        "rows": tensors[name].shape[0] if name in tensors else None,
        "tokenizer": _tokenizer_size(opened),
    }


def _tokenizer_size(opened: Opened) -> int | None:
    """How many ids the tokenizer beside the weights knows; None without a tokenizer.json."""
    if opened.kind == "gguf":
        return len(getattr(opened.source, "metadata", {}).get("tokenizer.ggml.tokens", ())) or None
    if opened.tokenizer is None:
        return None
    try:
        content = json.loads((opened.tokenizer(Path()) / "tokenizer.json").read_text(encoding="utf-8"))
        known = {*content["model"]["vocab"].values(), *(token["id"] for token in content["added_tokens"])}
        return int(max(known)) + 1
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _topology_text(topology: Mapping[str, Any] | None) -> str | None:
    if topology is None:
        return None
    return (
        f"tensor parallel {topology['tp_size']}, pipeline {topology['pp_size']}, KV multiplier "
        f"{topology['kv_multiplier']}, order {topology['order']}, qkv {topology['qkv']}, gate and up "
        f"{'in one' if topology['fused_gate_up'] else 'apart'}"
    )


def _model_text(shape: Mapping[str, Any] | None) -> str | None:
    if shape is None:
        return None
    return (
        f"{shape['model_type']}, {shape['layers']} layers, hidden {shape['hidden_size']}, intermediate "
        f"{shape['intermediate_size']}, {shape['heads']} query and {shape['kv_heads']} KV heads of "
        f"{shape['head_dim']}, {shape['max_position_embeddings']} positions"
    )


def _rope_text(rope: Mapping[str, Any] | None) -> str | None:
    if rope is None:
        return None
    scaling = {name: value for name, value in rope.items() if name not in ("theta", "kind")}
    used = (
        ", ".join(f"{name} {value:g}" for name, value in scaling.items()) if rope["kind"] != "default" else ""
    )
    return f"theta {rope['theta']:g}, {rope['kind']}{f' ({used})' if used else ''}"


def _vocabulary_text(vocabulary: Mapping[str, Any]) -> str | None:
    rows, known = vocabulary["rows"], vocabulary["tokenizer"]
    if rows is None:
        return None
    tokenizer = "no tokenizer beside it" if known is None else f"the tokenizer knows {known:,} ids"
    warning = ": MORE than rows" if known is not None and known > rows else ""
    return f"{rows:,} rows; {tokenizer}{warning}"


def _short(count: int) -> str:
    for size, letter in _UNITS:
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return str(count)
