"""Writes a Hugging Face folder of safetensors shards as a stream: a shard is never held in memory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kitae.catalog.hf_files import CHAT_TEMPLATE_FILES, TOKENIZER_FILES
from kitae.checkpoint.coverage import Coverage
from kitae.checkpoint.pipe import ScopedSink, TensorInfo
from kitae.checkpoint.replace import FolderReplacement, Making
from kitae.checkpoint.safetensors_writer import SafetensorsWriter
from kitae.model.rope_config import RopeConfig
from kitae.parallel.layout import Box
from kitae.storage.disk import storage_errors

HEAD = "lm_head.weight"
"""The head's name; a model without it uses the embedding."""
MAX_SHARD_BYTES = 5_000_000_000
_ROOM_FOR_SMALL_FILES = 1 << 20


class HfSink(ScopedSink):
    """A Hugging Face folder in the making: `close` makes it appear as a whole, an error leaves the old one.

    An existing folder is replaced only when all that lies in it is an export of kitae; else WeightsError.
    With `making` it is that folder which is filled, but for the tensors that are there already.
    """

    def __init__(
        self,
        folder: Path,
        tensors: Mapping[str, TensorInfo],
        *,
        config: Mapping[str, Any],
        max_shard_bytes: int = MAX_SHARD_BYTES,
        tokenizer_folder: Path | None = None,
        generation_config: Mapping[str, Any] | None = None,
        making: Making | None = None,
    ) -> None:
        self.folder = folder
        self._needed = sum(info.nbytes for info in tensors.values()) + _ROOM_FOR_SMALL_FILES
        shapes = {name: info.shape for name, info in tensors.items()}
        self._coverage = Coverage(shapes)
        self._shards = plan_shards(tensors, max_shard_bytes)
        self._writers: dict[str, SafetensorsWriter] = {}
        with storage_errors(folder, self._needed):
            self._making = making or FolderReplacement(folder, self._needed)
        for name in self._making.done:
            self._coverage.add(name, Box.whole(shapes[name]), shapes[name])
        try:
            with storage_errors(folder, self._needed):
                self._open(tensors)
                self._write_small_files(true_config(config, tensors), generation_config, tokenizer_folder)
        except BaseException:
            self.abort()
            raise

    def write(self, name: str, box: Box, tensor: torch.Tensor) -> None:
        """Write one box of the full tensor `name`, cast to the dtype given for it."""
        self._coverage.add(name, box, tuple(tensor.shape))
        with storage_errors(self.folder, self._needed):
            self._writers[name].write(name, box, tensor)

    def paths(self, name: str) -> list[Path]:
        """Where a tensor is written to."""
        return [self._writers[name].path]

    def close(self) -> None:
        """Check that all was written, make it durable, and put it in its place."""
        try:
            self._coverage.check()
            with storage_errors(self.folder, self._needed):
                for writer in self._writers.values():
                    writer.close()
                self._making.commit()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Remove all that was written; the old folder, if any, stays."""
        for writer in self._writers.values():
            writer.abort()
        self._making.discard()

    def _open(self, tensors: Mapping[str, TensorInfo]) -> None:
        for file, names in self._shards.items():
            # transformers refuses safetensors files that do not say which framework their layout is of.
            writer = SafetensorsWriter(
                self._making.temporary / file, {name: tensors[name] for name in names}, {"format": "pt"}
            )
            self._writers.update(dict.fromkeys(names, writer))
        if len(self._shards) > 1:
            index = {
                "metadata": {"total_size": sum(info.nbytes for info in tensors.values())},
                "weight_map": {name: file for file, names in self._shards.items() for name in names},
            }
            self._write_json("model.safetensors.index.json", index)

    def _write_small_files(
        self,
        config: Mapping[str, Any],
        generation_config: Mapping[str, Any] | None,
        tokenizer_folder: Path | None,
    ) -> None:
        self._write_json("config.json", config)
        if generation_config is not None:
            self._write_json("generation_config.json", generation_config)
        for name in (*TOKENIZER_FILES, *CHAT_TEMPLATE_FILES) if tokenizer_folder is not None else ():
            file = Path(tokenizer_folder or "", name)
            if file.is_file():
                shutil.copyfile(file, self._making.temporary / name)

    def _write_json(self, name: str, value: Mapping[str, Any]) -> None:
        text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        (self._making.temporary / name).write_text(text, encoding="utf-8")


def plan_shards(tensors: Mapping[str, TensorInfo], max_shard_bytes: int) -> dict[str, list[str]]:
    """File name -> tensor names, in order; only a tensor above `max_shard_bytes` makes a larger file."""
    groups: list[list[str]] = [[]]
    size = 0
    for name, info in tensors.items():
        if groups[-1] and size + info.nbytes > max_shard_bytes:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += info.nbytes
    if len(groups) == 1:
        return {"model.safetensors": groups[0]}
    return {f"model-{i:05d}-of-{len(groups):05d}.safetensors": group for i, group in enumerate(groups, 1)}


def true_config(config: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> dict[str, Any]:
    """The config with dtype and tied head as the tensors are; every other key is kept as it is.

    Rotary settings that only transformers 5 reads are given in the older spelling as well: 4 would take its
    default without a word.
    """
    sizes: dict[torch.dtype, int] = {}
    for info in tensors.values():
        sizes[info.dtype] = sizes.get(info.dtype, 0) + info.nbytes
    dtype = str(max(sizes, key=sizes.__getitem__)).removeprefix("torch.")
    keys = [key for key in ("dtype", "torch_dtype") if key in config] or ["dtype"]
    return {
        **config,
        **_older_rope(config),
        **dict.fromkeys(keys, dtype),
        "tie_word_embeddings": HEAD not in tensors,
    }


def _older_rope(config: Mapping[str, Any]) -> dict[str, Any]:
    if not config.get("rope_parameters") or config.get("rope_theta") or config.get("rope_scaling"):
        return {}
    rope = RopeConfig.from_hf(config, config.get("max_position_embeddings", 0))
    return {} if rope == RopeConfig() else rope.to_hf()
