"""A Hugging Face model folder, opened and checked: a supported config, and every tensor there in its shape.

Whether the head is the embedding is decided by the tensors, never by the flag in config.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kitae.checkpoint.coverage import listed
from kitae.checkpoint.hf import HfSource, read_json
from kitae.checkpoint.live import LiveSink
from kitae.checkpoint.pipe import Renamed, TensorSource
from kitae.checkpoint.stream import fill
from kitae.errors import WeightsError
from kitae.model.architecture import Model, ModelConfig, architecture_of, parse_config, table_of
from kitae.model.config import DecoderConfig
from kitae.model.decoder import Decoder
from kitae.parallel.layout import Box, Shape
from kitae.parallel.region import UNCUT, Region

EMBEDDING = "model.embed_tokens.weight"
"""Of a decoder."""
_COMPARED_ROWS = 4096


@dataclass(frozen=True)
class ModelFolder:
    """A folder whose tensors are those that the model needs."""

    folder: Path
    config: Mapping[str, Any]
    """config.json as it stands there, unknown keys included."""
    model_config: ModelConfig
    source: TensorSource
    """The tensors under the names that the model's layout has for them."""
    tied: bool
    """Whether the head is the embedding; then a copy of it in the folder is not among `names`."""
    dtype: torch.dtype
    """The dtype of the embedding."""
    names: tuple[str, ...]
    """The full tensors of the model, in the order of its layout."""
    generation_config: Mapping[str, Any] | None
    notes: tuple[str, ...]
    """What was odd and is harmless."""

    @property
    def decoder_config(self) -> DecoderConfig:
        """The configuration of a decoder; WeightsError for a model that is none."""
        return require_decoder(self.folder, self.model_config)


def open_model(folder: Path) -> ModelFolder:
    """Open a folder; WeightsError says what is unsupported, missing or contradictory."""
    config = read_json(folder / "config.json")
    model_config = model_config_of(folder, config)
    source = HfSource(folder)
    generation = folder / "generation_config.json"
    return checked_model(
        folder,
        config,
        model_config,
        source,
        generation_config=read_json(generation) if generation.is_file() else None,
        notes=source.notes,
    )


def checked_model(
    folder: Path,
    config: Mapping[str, Any],
    model_config: ModelConfig,
    source: TensorSource,
    *,
    generation_config: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> ModelFolder:
    """Full tensors from anywhere as a model; WeightsError unless they are those that the config needs."""
    kind = architecture_of(model_config)
    source = Renamed(source, kind.stored_names(model_config, source.tensors()))
    model_config = kind.settled(model_config, source.tensors())
    tied, note = head_is_tied(source, model_config)
    if not tied and not kind.may_untie:
        raise WeightsError(
            f"{folder}: {kind.head(model_config)} differs from the embedding; kitae trains a "
            f"{model_config.model_type} only with a head that is the embedding"
        )
    shapes = full_shapes(model_config, tied)
    left = _require_tensors(folder, source, shapes, model_config)
    return ModelFolder(
        folder=folder,
        config=config,
        model_config=model_config,
        source=source,
        tied=tied,
        dtype=source.tensors()[kind.embedding(model_config)].dtype,
        names=tuple(shapes),
        generation_config=generation_config,
        notes=(*notes, *note, *left),
    )


def load_model(
    folder: Path,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    region: Region = UNCUT,
) -> Model:
    """The model of a folder with its weights, cast to `dtype`; of a tensor-parallel rank, its part."""
    return build_model(open_model(folder), dtype, device, region)


def load_decoder(
    folder: Path,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    region: Region = UNCUT,
) -> Decoder:
    """As `load_model`; WeightsError for a model that is no decoder."""
    return build_decoder(open_model(folder), dtype, device, region)


def build_model(
    model: ModelFolder,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    region: Region = UNCUT,
) -> Model:
    """The model of an opened folder with its weights, cast to `dtype`; only what it holds is read."""
    build = architecture_of(model.model_config).build
    built = build(model.model_config, tied=model.tied, dtype=dtype, device=device, region=region)
    with LiveSink(dict(built.named_parameters()), built.layouts) as sink:
        fill(model.source, sink)
    return built


def build_decoder(
    model: ModelFolder,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    region: Region = UNCUT,
) -> Decoder:
    """As `build_model`; WeightsError for a model that is no decoder."""
    require_decoder(model.folder, model.model_config)
    return as_decoder(model.folder, build_model(model, dtype, device, region))


def model_of(
    config: Mapping[str, Any],
    source: TensorSource,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    region: Region = UNCUT,
) -> Model:
    """The model that a config.json describes, of any kind, with the tensors of a checkpoint of kitae.

    WeightsError unless they are those that it needs. Of a tensor-parallel rank, its part.
    """
    model_config = parse_config(config)
    kind = architecture_of(model_config)
    model_config = kind.settled(model_config, source.tensors())
    tied = kind.head(model_config) not in source.tensors()
    built = kind.build(model_config, tied=tied, dtype=dtype, device=device, region=region)
    fill_model(built, source)
    return built


def fill_model(model: Model, source: TensorSource) -> None:
    """Give a model, or a rank's part of one, its weights; WeightsError unless they are those it needs."""
    needed = {piece.tensor for layout in model.layouts for piece in layout.pieces}
    unknown = sorted(source.tensors().keys() - needed - {architecture_of(model.config).head(model.config)})
    if unknown:
        raise WeightsError(f"{len(unknown)} tensors are not part of the model: {listed(unknown)}")
    with LiveSink(dict(model.named_parameters()), model.layouts) as sink:
        fill(source, sink)


def full_shapes(config: ModelConfig, tied: bool) -> dict[str, Shape]:
    """Name and shape of every full tensor of a model."""
    layouts = table_of(config, tied)(1, 0)
    return {piece.tensor: piece.full_shape for layout in layouts for piece in layout.pieces}


def model_config_of(folder: Path, config: Mapping[str, Any]) -> ModelConfig:
    """What a config.json describes; WeightsError names the folder or file too."""
    try:
        return parse_config(config)
    except WeightsError as error:
        raise WeightsError(f"{folder}: {error}") from None


def decoder_config_of(folder: Path, config: Mapping[str, Any]) -> DecoderConfig:
    """As `model_config_of`; WeightsError for a model that is no decoder."""
    return require_decoder(folder, model_config_of(folder, config))


def require_decoder(folder: Path, config: ModelConfig) -> DecoderConfig:
    """The configuration; WeightsError unless it is a decoder's."""
    if not isinstance(config, DecoderConfig):
        raise WeightsError(
            f"{folder} holds an encoder (model_type: {config.model_type}), which predicts no next token; "
            "this needs a decoder, such as Llama's"
        )
    return config


def as_decoder(folder: Path, model: Model) -> Decoder:
    """The model of a folder; WeightsError unless it is a decoder."""
    require_decoder(folder, model.config)
    assert isinstance(model, Decoder)
    return model


def head_is_tied(source: TensorSource, config: ModelConfig) -> tuple[bool, Sequence[str]]:
    """Whether the head is the embedding, and a note where config.json says otherwise."""
    kind, flag, infos = architecture_of(config), config.tie_word_embeddings, source.tensors()
    head, embedding = kind.head(config), kind.embedding(config)
    if head is None:
        return True, []
    if head not in infos:
        return True, [] if flag else [
            f"config.json says untied, but there is no {head}: the head is the embedding"
        ]
    if embedding in infos and _equal(source, head, embedding):
        return True, [] if flag else [
            f"{head} equals the embedding to the bit: taken as tied, against config.json"
        ]
    return False, [f"{head} differs from the embedding: untied, against config.json"] if flag else []


def _equal(source: TensorSource, head: str, embedding: str) -> bool:
    """Whether head and embedding have the same bits, compared in blocks of rows."""
    infos = source.tensors()
    return infos[head] == infos[embedding] and all(
        torch.equal(source.read(head, box).view(torch.uint8), source.read(embedding, box).view(torch.uint8))
        for box in _row_blocks(infos[head].shape)
    )


def _row_blocks(shape: Shape) -> Iterator[Box]:
    for first in range(0, shape[0], _COMPARED_ROWS):
        rows = min(_COMPARED_ROWS, shape[0] - first)
        yield Box((first, *(0,) * (len(shape) - 1)), (rows, *shape[1:]))


def _require_tensors(
    folder: Path, source: TensorSource, shapes: Mapping[str, Shape], config: ModelConfig
) -> Sequence[str]:
    """Raise WeightsError unless the tensors are those of the shapes; a note of what is left out of others."""
    found = source.tensors()
    missing = [name for name in shapes if name not in found]
    if missing:
        raise WeightsError(
            f"{folder}: {len(missing)} of {len(shapes)} tensors are missing: {listed(missing)}"
        )
    wrong = [
        f"{name} is {found[name].shape}, config.json needs {shape}"
        for name, shape in shapes.items()
        if found[name].shape != shape
    ]
    if wrong:
        raise WeightsError(f"{folder}: {len(wrong)} tensors have another shape: {listed(wrong)}")
    left = require_known(folder, source, shapes, config)
    integers = [f"{name} ({found[name].dtype})" for name in shapes if not found[name].dtype.is_floating_point]
    if integers:
        raise WeightsError(
            f"{folder}: quantised tensors are not supported: {listed(integers)}; dequantise them first"
        )
    return left


def require_known(
    folder: Path, source: TensorSource, shapes: Mapping[str, Shape], config: ModelConfig
) -> Sequence[str]:
    """Raise WeightsError where a tensor is neither the model's nor of a head; a note of those of heads."""
    kind = architecture_of(config)
    others = [name for name in source.tensors() if name not in shapes and name != kind.head(config)]
    unknown = [name for name in others if not kind.left_out(name)]
    if unknown:
        raise WeightsError(
            f"{folder}: {len(unknown)} tensors are not part of the model that config.json describes: "
            f"{listed(unknown)}"
        )
    if not others:
        return []
    return [f"left out, as {kind.class_name(config)} has no such part: {', '.join(others)}"]
