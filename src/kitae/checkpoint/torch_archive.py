"""The zip archive that torch.save writes: where its records are, and tensors read from it a box at a time.

Nothing is unpickled here, and no file is held open: a tensor is a place in a file, and reading a box of it
reads the rows that the box meets into memory of its own.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch

from kitae.checkpoint.pipe import TensorInfo
from kitae.errors import WeightsError
from kitae.parallel.layout import Box, Shape

WAY_OUT = "copy the checkpoint again from where it was made, or take an earlier one"
_LOCAL_HEADER_BYTES = 30
_MAX_PICKLE_BYTES = 256 << 20


@dataclass(frozen=True)
class Record:
    """Bytes `start` to `start + size` of a file."""

    start: int
    size: int


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file: its first element is at byte `start`, `stride` is in elements."""

    path: Path
    start: int
    dtype: torch.dtype
    shape: Shape
    stride: Shape

    @property
    def info(self) -> TensorInfo:
        """Shape and dtype."""
        return TensorInfo(self.shape, self.dtype)

    def read(self, box: Box | None = None) -> torch.Tensor:
        """The box (all by default), in memory of its own; of the file only the rows that it meets."""
        box = box or Box.whole(self.shape)
        if not prod(box.shape):
            return torch.empty(box.shape, dtype=self.dtype)
        if not self.shape:
            return self._elements(0, 1).reshape(())
        first, rows = box.start[0], box.shape[0]
        shape = (rows, *self.shape[1:])
        extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, self.stride, strict=True))
        part = self._elements(first * self.stride[0], extent).as_strided(shape, self.stride)
        return part[(slice(None), *box.slices()[1:])].contiguous()

    def mapped(self) -> torch.Tensor:
        """The tensor as a private map of the file: pages are read when they are looked at."""
        extent = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.stride, strict=True))
        if not prod(self.shape) or self.start % self.dtype.itemsize:
            return self.read()
        mapped = np.memmap(self.path, np.uint8, "c", self.start, (extent * self.dtype.itemsize,))
        return torch.from_numpy(mapped).view(self.dtype).as_strided(self.shape, self.stride)

    def _elements(self, first: int, count: int) -> torch.Tensor:
        """A run of elements as they lie in the file."""
        values = torch.empty(count, dtype=self.dtype)
        left = memoryview(values.view(torch.uint8).numpy().data)
        with self.path.open("rb", buffering=0) as file:
            file.seek(self.start + first * self.dtype.itemsize)
            # A single call of the system reads at most 2 GiB.
            while left:
                count = file.readinto(left) or 0
                if not count:
                    raise WeightsError(f"{self.path} ends before its tensors do; {WAY_OUT}")
                left = left[count:]
        return values


class TorchArchive:
    """The records of one file of torch.save; WeightsError when it is cut off or something else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records = _records(path)

    def pickle(self) -> bytes:
        """The pickled structure, in which tensors are references to other records."""
        # Archives of torch before 2.1 do not say; they are little-endian, as this machine is.
        if "byteorder" in self._records and self._bytes("byteorder") != sys.byteorder.encode():
            raise WeightsError(
                f"{self.path} is of a machine of the other byte order; save it again on this one"
            )
        return self._bytes("data.pkl")

    def record(self, name: str) -> Record:
        """Where a record's bytes are."""
        if name not in self._records:
            raise WeightsError(f"{self.path} lacks its record {name}; {WAY_OUT}")
        entry = self._records[name]
        with self.path.open("rb") as file:
            file.seek(entry.header_offset)
            header = file.read(_LOCAL_HEADER_BYTES)
            size = file.seek(0, 2)
        names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        start = entry.header_offset + _LOCAL_HEADER_BYTES + names
        if header[:4] != b"PK\x03\x04" or start + entry.file_size > size:
            raise WeightsError(f"{self.path} is cut off or overwritten at its record {name}; {WAY_OUT}")
        return Record(start, entry.file_size)

    def _bytes(self, name: str) -> bytes:
        record = self.record(name)
        if record.size > _MAX_PICKLE_BYTES:
            raise WeightsError(
                f"{self.path} has {record.size:,} bytes of {name}; no file of weights needs that"
            )
        with self.path.open("rb") as file:
            file.seek(record.start)
            return file.read(record.size)


def _records(path: Path) -> Mapping[str, zipfile.ZipInfo]:
    """The records by their names inside the archive's one folder."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except FileNotFoundError:
        raise WeightsError(f"{path} is missing; {WAY_OUT}") from None
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise WeightsError(_no_archive(path)) from error
    records = {entry.filename.partition("/")[2]: entry for entry in entries}
    if len(records) < len(entries) or any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise WeightsError(f"{path} is a zip archive, but not one of torch.save; {WAY_OUT}")
    return records


def _no_archive(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(2)
    if start == b"PK":
        return f"{path} is cut off ({path.stat().st_size:,} bytes are there); {WAY_OUT}"
    return (
        f"{path} is no archive of torch.save; it is either something else or of torch before 1.6: "
        "in the latter case load it and save it again on a machine where you trust it"
    )
