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
from kitae.checkpoint.hf_sink import HEAD
from kitae.checkpoint.live import LiveSink
from kitae.checkpoint.pipe import TensorInfo, TensorSource
from kitae.checkpoint.stream import fill
from kitae.errors import WeightsError
from kitae.model.config import DecoderConfig
from kitae.model.decoder import Decoder, decoder_layouts
from kitae.parallel.layout import Box, Shape
from kitae.parallel.region import UNCUT, Region

EMBEDDING = "model.embed_tokens.weight"
_COMPARED_ROWS = 4096


@dataclass(frozen=True)
class ModelFolder:
    """A folder whose tensors are those that the decoder needs."""

    folder: Path
    config: Mapping[str, Any]
    """config.json as it stands there, unknown keys included."""
    decoder_config: DecoderConfig
    source: TensorSource
    tied: bool
    """Whether the head is the embedding; then a copy of it in the folder is not among `names`."""
    dtype: torch.dtype
    """The dtype of the embedding."""
    names: tuple[str, ...]
    """The full tensors of the model, in the order of its layout."""
    generation_config: Mapping[str, Any] | None
    notes: tuple[str, ...]
    """What was odd and is harmless."""


def open_model(folder: Path) -> ModelFolder:
    """Open a folder; WeightsError says what is unsupported, missing or contradictory."""
    config = read_json(folder / "config.json")
    decoder_config = decoder_config_of(folder, config)
    source = HfSource(folder)
    generation = folder / "generation_config.json"
    return checked_model(
        folder,
        config,
        decoder_config,
        source,
        generation_config=read_json(generation) if generation.is_file() else None,
        notes=source.notes,
    )


def checked_model(
    folder: Path,
    config: Mapping[str, Any],
    decoder_config: DecoderConfig,
    source: TensorSource,
    *,
    generation_config: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> ModelFolder:
    """Full tensors from anywhere as a model; WeightsError unless they are those that the config needs."""
    tied, note = head_is_tied(source, decoder_config.tie_word_embeddings)
    shapes = full_shapes(decoder_config, tied)
    _require_tensors(folder, source, shapes, tied)
    return ModelFolder(
        folder=folder,
        config=config,
        decoder_config=decoder_config,
        source=source,
        tied=tied,
        dtype=source.tensors()[EMBEDDING].dtype,
        names=tuple(shapes),
        generation_config=generation_config,
        notes=(*notes, *note),
    )


def load_decoder(
    folder: Path,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    region: Region = UNCUT,
) -> Decoder:
    """The decoder of a folder with its weights, cast to `dtype`; of a tensor-parallel rank, its part."""
    return build_decoder(open_model(folder), dtype, device, region)


def build_decoder(
    model: ModelFolder,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    region: Region = UNCUT,
) -> Decoder:
    """The decoder of an opened folder with its weights, cast to `dtype`; only what it holds is read."""
    decoder = Decoder(model.decoder_config, tied=model.tied, dtype=dtype, device=device, region=region)
    fill_decoder(decoder, model.source)
    return decoder


def fill_decoder(decoder: Decoder, source: TensorSource) -> None:
    """Give a decoder, or a rank's part of one, its weights; WeightsError unless they are those it needs."""
    needed = {piece.tensor for layout in decoder.layouts for piece in layout.pieces}
    unknown = sorted(source.tensors().keys() - needed - {HEAD})
    if unknown:
        raise WeightsError(f"{len(unknown)} tensors are not part of the model: {listed(unknown)}")
    with LiveSink(dict(decoder.named_parameters()), decoder.layouts) as sink:
        fill(source, sink)


def full_shapes(config: DecoderConfig, tied: bool) -> dict[str, Shape]:
    """Name and shape of every full tensor of a decoder."""
    layouts = decoder_layouts(config, tied)(1, 0)
    return {piece.tensor: piece.full_shape for layout in layouts for piece in layout.pieces}


def decoder_config_of(folder: Path, config: Mapping[str, Any]) -> DecoderConfig:
    """What a config.json describes; WeightsError names the folder or file too."""
    try:
        return DecoderConfig.from_hf(config)
    except WeightsError as error:
        raise WeightsError(f"{folder}: {error}") from None


def head_is_tied(source: TensorSource, flag: bool) -> tuple[bool, Sequence[str]]:
    """Whether the head is the embedding, and a note where config.json says otherwise."""
    infos = source.tensors()
    if HEAD not in infos:
        return True, [] if flag else [
            f"config.json says untied, but there is no {HEAD}: the head is the embedding"
        ]
    if EMBEDDING in infos and _equal(source, infos[HEAD], infos[EMBEDDING]):
        return True, [] if flag else [
            f"{HEAD} equals the embedding to the bit: taken as tied, against config.json"
        ]
    return False, [f"{HEAD} differs from the embedding: untied, against config.json"] if flag else []


def _equal(source: TensorSource, head: TensorInfo, embedding: TensorInfo) -> bool:
    """Whether head and embedding have the same bits, compared in blocks of rows."""
    return head == embedding and all(
        torch.equal(source.read(HEAD, box).view(torch.uint8), source.read(EMBEDDING, box).view(torch.uint8))
        for box in _row_blocks(head.shape)
    )


def _row_blocks(shape: Shape) -> Iterator[Box]:
    for first in range(0, shape[0], _COMPARED_ROWS):
        rows = min(_COMPARED_ROWS, shape[0] - first)
        yield Box((first, *(0,) * (len(shape) - 1)), (rows, *shape[1:]))


def _require_tensors(folder: Path, source: TensorSource, shapes: dict[str, Shape], tied: bool) -> None:
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
    unknown = [name for name in found if name not in shapes and not (tied and name == HEAD)]
    if unknown:
        raise WeightsError(
            f"{folder}: {len(unknown)} tensors are not part of the model that config.json describes: "
            f"{listed(unknown)}"
        )
    integers = [f"{name} ({found[name].dtype})" for name in shapes if not found[name].dtype.is_floating_point]
    if integers:
        raise WeightsError(
            f"{folder}: quantised tensors are not supported: {listed(integers)}; dequantise them first"
        )
