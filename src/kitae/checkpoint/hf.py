"""A Hugging Face folder of weights as a source: safetensors or .bin, one file or sharded with an index.

What headers and the index can tell is checked when the folder is opened, before anything is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from kitae.checkpoint.coverage import listed
from kitae.checkpoint.hf_bin import BinFile
from kitae.checkpoint.hf_sink import HEAD, HfSink
from kitae.checkpoint.pipe import TensorInfo
from kitae.checkpoint.safetensors_file import SafetensorsFile
from kitae.errors import WeightsError
from kitae.parallel.layout import Box

__all__ = ["HfSink", "HfSource", "read_json"]

COMPUTED = re.compile(r"\.rotary_emb\.inv_freq$|\.masked_bias$|\bembeddings\.position_ids$")
"""Buffers of old checkpoints that the model computes itself."""


class TensorFile(Protocol):
    """One file of weights."""

    path: Path
    tensors: dict[str, TensorInfo]

    def read(self, name: str, box: Box) -> torch.Tensor:
        """The box of a tensor."""
        ...


FORMATS: tuple[tuple[str, Callable[[Path], TensorFile]], ...] = (
    ("model.safetensors", SafetensorsFile),
    ("pytorch_model.bin", BinFile),
)
"""Single-file name and reader of each format, preferred first; an index is that name and `.index.json`."""


class HfSource:
    """The tensors of a Hugging Face folder; `notes` says what was odd and is harmless."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: list[str] = []
        self.files, weight_map = _open(folder)
        self._file = {name: file for file in self.files for name in file.tensors if not COMPUTED.search(name)}
        if weight_map is not None:
            self._check_index(weight_map, {file.path.name: file for file in self.files})

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Shape and dtype of every tensor, without buffers that the model computes itself."""
        return {name: file.tensors[name] for name, file in self._file.items()}

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        """The box of a tensor, in the dtype of the file; only what is needed is read from the disk."""
        file = self._file[name]
        return file.read(name, box or Box.whole(file.tensors[name].shape))

    def _check_index(self, weight_map: Mapping[str, str], files: Mapping[str, TensorFile]) -> None:
        absent = [name for name, file in weight_map.items() if name not in files[file].tensors]
        if absent == [HEAD] and HEAD not in self._file and self._says_tied():
            self.notes.append(f"the index names {HEAD}, which no file has; the head is tied to the embedding")
        elif absent:
            where = [f"{name} in {weight_map[name]}" for name in absent]
            raise WeightsError(
                f"{self.folder}: the index names tensors that are not in their file: {listed(where)}"
            )
        extra = [f"{name} in {file.path.name}" for name, file in self._file.items() if name not in weight_map]
        if extra:
            raise WeightsError(
                f"{self.folder}: files hold tensors that the index does not name ({listed(extra)}); "
                "the folder may mix two exports, download it again into an empty one"
            )

    def _says_tied(self) -> bool:
        config = self.folder / "config.json"
        return config.is_file() and bool(read_json(config).get("tie_word_embeddings"))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; WeightsError when it is missing or broken."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WeightsError(f"{path} is missing; a model folder holds config.json and weights") from None
    except (ValueError, OSError, RecursionError) as error:
        raise WeightsError(f"{path} cannot be read as JSON ({error}); download it again") from error
    if not isinstance(value, dict):
        raise WeightsError(f"{path} must hold a JSON object")
    return value


def _open(folder: Path) -> tuple[list[TensorFile], dict[str, str] | None]:
    """The files of the first format that is there, and the index's tensor -> file when there is one."""
    for single, reader in FORMATS:
        index = folder / f"{single}.index.json"
        if index.is_file():
            weight_map = _weight_map(index)
            _require_files(folder, index, weight_map, single)
            return [reader(folder / name) for name in sorted(set(weight_map.values()))], weight_map
        if (folder / single).is_file():
            _require_alone(folder, single)
            return [reader(folder / single)], None
    raise WeightsError(_nothing_found(folder))


def _weight_map(index: Path) -> dict[str, str]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise WeightsError(f"{index} has no weight_map; download it again")
    return {str(name): str(file) for name, file in weight_map.items()}


def _require_files(folder: Path, index: Path, weight_map: Mapping[str, str], single: str) -> None:
    named = set(weight_map.values())
    outside = sorted(name for name in named if Path(name).name != name)
    if outside:
        raise WeightsError(f"{index} names files outside its folder: {listed(outside)}")
    missing = sorted(named - {path.name for path in folder.iterdir() if path.is_file()})
    if missing:
        raise WeightsError(
            f"{folder}: {len(missing)} of {len(named)} weight files are missing: {listed(missing)}; "
            "download them"
        )
    if single not in named and (folder / single).is_file():
        raise WeightsError(
            f"{folder} holds both {single} and {index.name}, of two exports; remove the one you don't mean"
        )


def _require_alone(folder: Path, single: str) -> None:
    stem, ending = single.rsplit(".", 1)
    shards = sorted(path.name for path in folder.glob(f"{stem}-*-of-*.{ending}"))
    if shards:
        raise WeightsError(
            f"{folder} holds both {single} and {listed(shards)}, of two exports; remove what you don't mean"
        )


def _nothing_found(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} is not a folder"
    shards = sorted(p.name for p in folder.iterdir() if p.name.endswith((".safetensors", ".bin")))
    if shards:
        return f"{folder} holds {listed(shards)} without their index; download the .index.json file too"
    names = " nor ".join(single for single, _ in FORMATS)
    return f"{folder} holds no weights: neither {names}, alone or with an index"
