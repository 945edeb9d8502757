"""The zip archive that torch.save writes: where its records are, and tensors read from it a box at a time.

Nothing is unpickled here, and no file is held open: a tensor is a place in a file. It is read with calls of
the system, not mapped, so that what was read does not count as memory of the process.
"""

from __future__ import annotations

import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from itertools import accumulate
from math import prod
from operator import mul
from pathlib import Path
from typing import BinaryIO

import torch

from kitae.checkpoint.pipe import TensorInfo
from kitae.errors import WeightsError
from kitae.parallel.layout import Box, Shape

WAY_OUT = "copy the checkpoint again from where it was made, or take an earlier one"
_LOCAL_HEADER_BYTES = 30
_UTF8 = 0x800
"""The flag of a name in UTF-8; without it, it is read as code page 437."""
_MAX_PICKLE_BYTES = 256 << 20
_BLOCK_BYTES = 4 << 20
"""Small enough that the memory is used again, for new pages are slower than the copying."""


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
        """The box (all by default), in memory of its own."""
        box = box or Box.whole(self.shape)
        result = torch.empty(box.shape, dtype=self.dtype)
        self.read_into(box, result)
        return result

    def read_into(self, box: Box, target: torch.Tensor) -> None:
        """Fill a tensor of the box's shape; of the file, only the rows that the box meets are read."""
        if not prod(box.shape):
            return
        with self.path.open("rb", buffering=0) as file:
            if not self.shape:
                self._fill(file, 0, target.view(1))
            elif self._in_rows():
                self._read_rows(file, box, target)
            else:
                target.copy_(self._strided(file, box))

    def _in_rows(self) -> bool:
        """Whether elements lie as in a contiguous tensor; strides of single entries do not matter."""
        due = list(accumulate((1, *self.shape[:0:-1]), mul))[::-1]
        return all(
            size == 1 or here == step for size, here, step in zip(self.shape, self.stride, due, strict=True)
        )

    def _read_rows(self, file: FileIO, box: Box, target: torch.Tensor) -> None:
        """Row by row straight into place where rows are whole, else through a little memory of its own."""
        width = prod(self.shape[1:])
        straight = box.shape[1:] == self.shape[1:] and target.is_contiguous()
        columns = box.slices()[1:]
        for first, count in blocks(box.shape[0], width * self.dtype.itemsize, _BLOCK_BYTES):
            rows = target[first : first + count]
            values = rows if straight else torch.empty((count, *self.shape[1:]), dtype=self.dtype)
            self._fill(file, (box.start[0] + first) * width, values.view(-1))
            if not straight:
                rows.copy_(values[(slice(None), *columns)])

    def _strided(self, file: FileIO, box: Box) -> torch.Tensor:
        shape = (box.shape[0], *self.shape[1:])
        values = torch.empty(_extent(shape, self.stride), dtype=self.dtype)
        self._fill(file, box.start[0] * self.stride[0], values)
        return values.as_strided(shape, self.stride)[(slice(None), *box.slices()[1:])]

    def _fill(self, file: FileIO, first: int, values: torch.Tensor) -> None:
        """Read a run of elements, as they lie in the file, into a contiguous tensor of one dimension."""
        left = memoryview(values.view(torch.uint8).numpy().data)
        file.seek(self.start + first * self.dtype.itemsize)
        # A single call of the system reads at most 2 GiB.
        while left:
            count = file.readinto(left)
            if not count:
                raise WeightsError(f"{self.path} ends before its tensors do; {WAY_OUT}")
            left = left[count:]


def blocks(rows: int, row_bytes: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """First row and number of rows of runs that are not larger than `most_bytes`, unless a row is."""
    size = max(1, most_bytes // max(1, row_bytes))
    for first in range(0, rows, size):
        yield first, min(size, rows - first)


def _extent(shape: Shape, stride: Shape) -> int:
    """Elements from the first to the last one of a tensor that is not empty."""
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


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
        content = self._bytes("data.pkl")
        # A changed name in it would give a tensor another's values. 0 is that of a writer told to make none.
        if self._records["data.pkl"].CRC not in (0, zlib.crc32(content)):
            raise WeightsError(f"{self.path} is damaged at its record data.pkl; {WAY_OUT}")
        return content

    def record(self, name: str) -> Record:
        """Where a record's bytes are."""
        if name not in self._records:
            raise WeightsError(f"{self.path} lacks its record {name}; {WAY_OUT}")
        entry = self._records[name]
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            # An offset may be anything in a directory that is damaged.
            header = _local_header(file, entry.header_offset) if 0 <= entry.header_offset < size else b""
        start = entry.header_offset + len(header)
        if not _is_header_of(header, entry) or start + entry.file_size > size:
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


def _local_header(file: BinaryIO, offset: int) -> bytes:
    """What stands before the data of a record, as long as it says to be."""
    file.seek(offset)
    fixed = file.read(_LOCAL_HEADER_BYTES)
    return fixed + file.read(sum(_lengths(fixed)))


def _lengths(header: bytes) -> tuple[int, int]:
    """Of the name, and of the extra fields that make the data aligned."""
    return int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")


def _is_header_of(header: bytes, entry: zipfile.ZipInfo) -> bool:
    """Whether it is the record's and whole, for where it ends the data begins."""
    name_length, extra_length = _lengths(header)
    name = entry.orig_filename.encode("utf-8" if entry.flag_bits & _UTF8 else "cp437")
    start = _LOCAL_HEADER_BYTES + name_length
    if header[:4] != b"PK\x03\x04" or header[_LOCAL_HEADER_BYTES:start] != name:
        return False
    end = start + extra_length
    while start + 4 <= end:
        start += 4 + int.from_bytes(header[start + 2 : start + 4], "little")
    return start == end == len(header)


def _no_archive(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(2)
    if start == b"PK":
        return f"{path} is cut off ({path.stat().st_size:,} bytes are there); {WAY_OUT}"
    return (
        f"{path} is no archive of torch.save; it is either something else or of torch before 1.6: "
        "in the latter case load it and save it again on a machine where you trust it"
    )
