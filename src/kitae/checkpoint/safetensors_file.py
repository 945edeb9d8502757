"""One .safetensors file: its header checked against its size, and any box read without the rest.

The format is 8 bytes of little-endian header length, a JSON header `{name: {dtype, shape, data_offsets}}`
with an optional `__metadata__` of strings, then the data.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from kitae.checkpoint.pipe import TensorInfo
from kitae.errors import WeightsError
from kitae.parallel.layout import Box

DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Names of dtypes in a header."""
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_KEYS = {"dtype", "shape", "data_offsets"}
_MAX_HEADER_BYTES = 100_000_000
_MOST_MAPPED_BYTES = 32 << 20
_LFS_POINTER = b"version https://git-lfs"


class SafetensorsFile:
    """A file that was found whole; raises `WeightsError` when it is cut off or is something else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors = {name: _info(path, name, entry) for name, entry in read_header(path).items()}
        self._handle: Any = self._map()
        self._mapped_bytes = 0

    def read(self, name: str, box: Box) -> torch.Tensor:
        """The box of tensor `name`; only its bytes are read."""
        handle = self._fresh(prod(box.shape) * self.tensors[name].dtype.itemsize)
        if box == Box.whole(self.tensors[name].shape):
            whole: torch.Tensor = handle.get_tensor(name)
            return whole
        part: torch.Tensor = handle.get_slice(name)[box.slices()]
        return part

    def _fresh(self, read_bytes: int) -> Any:
        """The file, mapped anew now and then: pages that were read count as memory while they are mapped."""
        self._mapped_bytes += read_bytes
        if self._mapped_bytes > _MOST_MAPPED_BYTES:
            self._handle, self._mapped_bytes = None, read_bytes
            self._handle = self._map()
        return self._handle

    def _map(self) -> Any:
        try:
            return safe_open(str(self.path), framework="pt")
        except SafetensorError as error:
            raise WeightsError(
                f"{self.path} is not a whole safetensors file ({error}); get it again"
            ) from error


def read_header(path: Path) -> dict[str, dict[str, Any]]:
    """The header of a file without `__metadata__`, after checking that the data it promises is there."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if start + file.read(len(_LFS_POINTER) - 8) == _LFS_POINTER:
            raise WeightsError(f"{path} is a Git LFS pointer, not the weights; fetch them with: git lfs pull")
        length = int.from_bytes(start, "little")
        if len(start) < 8:
            raise _truncated(path, 8, size)
        if length > _MAX_HEADER_BYTES:
            raise WeightsError(f"{path} is not a safetensors file; download it again")
        file.seek(8)
        raw = file.read(length)
    if len(raw) < length:
        raise _truncated(path, 8 + length, size)
    header = _parse(path, raw)
    _check_size(path, header, 8 + length, size)
    return header


def _parse(path: Path, raw: bytes) -> dict[str, dict[str, Any]]:
    try:
        header = json.loads(raw)
        header.pop("__metadata__", None)
        if not all(map(_is_entry, header.values())):
            raise ValueError("an entry lacks a key, or has a value that cannot be one")
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise WeightsError(
            f"{path} is not a safetensors file: its header is broken; download it again"
        ) from error
    return dict(header)


def _is_entry(entry: dict[str, Any]) -> bool:
    """Whether a header may say this of a tensor, as far as types tell."""
    return (
        entry.keys() >= _KEYS
        and isinstance(entry["dtype"], str)
        and _are_sizes(entry["shape"])
        and _are_sizes(entry["data_offsets"])
        and len(entry["data_offsets"]) == 2
    )


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _check_size(path: Path, header: dict[str, dict[str, Any]], start: int, size: int) -> None:
    expected = start + max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if size < expected:
        raise _truncated(path, expected, size)
    if size > expected:
        raise WeightsError(
            f"{path} has {size - expected} bytes more than its header describes; download it again"
        )


def _truncated(path: Path, expected: int, size: int) -> WeightsError:
    return WeightsError(
        f"{path} is cut off: its header promises {expected:,} bytes, the file has {size:,} "
        "(a truncated download?); delete it and download it again"
    )


def _info(path: Path, name: str, entry: dict[str, Any]) -> TensorInfo:
    if entry["dtype"] not in DTYPES:
        raise WeightsError(f"{path}: tensor {name} has dtype {entry['dtype']}, which is not supported")
    return TensorInfo(tuple(entry["shape"]), DTYPES[entry["dtype"]])
