"""Writes one .safetensors file in any order of boxes: the header is known, so no tensor waits in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch

from kitae.checkpoint.box_bytes import runs, write_all
from kitae.checkpoint.pipe import TensorInfo
from kitae.checkpoint.safetensors_file import DTYPE_NAMES
from kitae.parallel.layout import Box


class SafetensorsWriter:
    """An open file with its header in place; `write` puts boxes where they belong.

    A file that is there already keeps what is in it.
    """

    def __init__(self, path: Path, tensors: Mapping[str, TensorInfo], metadata: Mapping[str, str]) -> None:
        header, offsets = _header(tensors, metadata)
        self._infos = dict(tensors)
        self._offsets = offsets
        self.path = path
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
        write_all(self._file.fileno(), memoryview(header), 0)

    def write(self, name: str, box: Box, tensor: torch.Tensor) -> None:
        """Write the values of one box, cast to the dtype of the file."""
        info = self._infos[name]
        flat = tensor.detach().to("cpu", info.dtype).contiguous().reshape(-1).view(torch.uint8)
        data = memoryview(flat.numpy().data)
        if len(data) == 0:
            return
        done = 0
        for first, count in runs(box, info.shape):
            size = count * info.dtype.itemsize
            position = self._offsets[name] + first * info.dtype.itemsize
            write_all(self._file.fileno(), data[done : done + size], position)
            done += size

    def close(self) -> None:
        """Flush to the disk and close."""
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()

    def abort(self) -> None:
        """Close without caring for what was written."""
        self._file.close()


def _header(tensors: Mapping[str, TensorInfo], metadata: Mapping[str, str]) -> tuple[bytes, dict[str, int]]:
    """Header bytes and each tensor's position; wide dtypes come first, so that every tensor is aligned."""
    entries: dict[str, object] = {"__metadata__": dict(metadata)}
    offsets: dict[str, int] = {}
    end = 0
    for name, info in sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize):
        offsets[name], end = end, end + info.nbytes
        entries[name] = {
            "dtype": DTYPE_NAMES[info.dtype],
            "shape": list(info.shape),
            "data_offsets": [offsets[name], end],
        }
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    start = 8 + len(text)
    return len(text).to_bytes(8, "little") + text, {name: start + offset for name, offset in offsets.items()}
