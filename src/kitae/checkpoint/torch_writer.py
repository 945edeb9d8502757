"""Writes an archive as torch.save makes it, in any order of its tensors' bytes, without holding any.

It is a zip of stored records, laid out byte for byte as by PyTorch's writer (caffe2/serialize and its miniz):
data aligned to 64 bytes by an extra field, checksums after the data, a zip64 directory at the end. All sizes
are known at the start, so every record has its place before its bytes come.
"""

from __future__ import annotations

import os
import struct
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kitae.checkpoint.box_bytes import write_all

_ALIGNMENT = 64
_LARGE = 0xFFFFFFFF
"""Sizes and offsets from here on are written in the fields of zip64."""
_UTF8_AND_LATE_CHECKSUM = 0x0808
_READ_BYTES = 16 << 20


class TorchFile:
    """A file in the making: `write` fills its storages, and the last byte of them completes it.

    A file that is there already keeps what is in it; `keep` says how much of the storages that is.
    """

    def __init__(self, path: Path, pickle: bytes, storage_bytes: Sequence[int]) -> None:
        contents = {
            "data.pkl": pickle,
            ".format_version": b"1",
            ".storage_alignment": str(_ALIGNMENT).encode(),
            "byteorder": sys.byteorder.encode(),
        }
        sizes = {name: len(content) for name, content in contents.items()}
        sizes |= {f"data/{index}": size for index, size in enumerate(storage_bytes)}
        self.path = path
        self._contents = {**contents, "version": b"3\n"}
        self._records = _placed(path.stem, {**sizes, "version": 2})
        self._missing = sum(storage_bytes)
        self._descriptor: int | None = None
        if not self._missing:
            self._finish()

    @property
    def size_bytes(self) -> int:
        """Size of the complete file."""
        return _end(self._records) + len(_directory(self._records))

    def write(self, storage: int, offset: int, data: memoryview) -> None:
        """Put bytes at `offset` of a storage; each byte is to be written once."""
        record = self._records[f"data/{storage}"]
        write_all(self._open(), data, record.start + offset)
        record.note(offset, data)
        self._missing -= len(data)
        if not self._missing:
            self._finish()

    def keep(self, size: int) -> None:
        """Take over so many bytes of the storages, which another process has written.

        If these are all, it has completed the file; else their checksums come from reading them in the end.
        """
        self._missing -= size

    def abort(self) -> None:
        """Close the file as it is."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        """The file, created with all that is known of it when it is first needed."""
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            for name, record in self._records.items():
                write_all(self._descriptor, memoryview(record.header()), record.position)
                if name in self._contents:
                    content = memoryview(self._contents[name])
                    write_all(self._descriptor, content, record.start)
                    record.note(0, content)
        return self._descriptor

    def _finish(self) -> None:
        descriptor = self._open()
        for record in self._records.values():
            record.check(descriptor)
            write_all(descriptor, memoryview(record.trailer()), record.start + record.size)
        write_all(descriptor, memoryview(_directory(self._records)), _end(self._records))
        self.abort()


@dataclass
class _Record:
    """One entry of the archive."""

    name: bytes
    position: int
    """Where its header is."""
    size: int
    checksum: int = 0
    """Of the first `checked` bytes."""
    checked: int = 0

    @property
    def large(self) -> bool:
        return self.size >= _LARGE or self.position >= _LARGE

    @property
    def start(self) -> int:
        """Where its data is."""
        return self.position + len(self.header())

    @property
    def end(self) -> int:
        return self.start + self.size + len(self.trailer())

    def header(self) -> bytes:
        """The local header, with so much padding that the data is aligned."""
        extra = self._wide_fields()
        start = self.position + 30 + len(self.name) + len(extra) + 4
        padding = -start % _ALIGNMENT
        extra += struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        fixed = struct.pack(
            "<4s5H3L2H", b"PK\3\4", 0, _UTF8_AND_LATE_CHECKSUM, 0, 0, 0, 0, 0, 0, len(self.name), len(extra)
        )
        return fixed + self.name + extra

    def trailer(self) -> bytes:
        """The data descriptor: checksum and sizes."""
        return struct.pack(
            "<4sL2Q" if self.large else "<4sL2L", b"PK\7\b", self.checksum, self.size, self.size
        )

    def entry(self) -> bytes:
        """What the directory says of it."""
        extra = self._wide_fields()
        size, position = min(self.size, _LARGE), min(self.position, _LARGE)
        fixed = struct.pack(
            "<4s6H3L5H2L",
            b"PK\1\2",
            *(0, 0, _UTF8_AND_LATE_CHECKSUM, 0, 0, 0),
            *(self.checksum, size, size),
            *(len(self.name), len(extra), 0, 0, 0, 0, position),
        )
        return fixed + self.name + extra

    def note(self, offset: int, data: memoryview) -> None:
        """Bring the checksum forward by data that was written, when it follows on what is checked."""
        if offset == self.checked:
            self.checksum = zlib.crc32(data, self.checksum)
            self.checked += len(data)

    def check(self, descriptor: int) -> None:
        """Complete the checksum by reading what came out of order."""
        while self.checked < self.size:
            wanted = min(self.size - self.checked, _READ_BYTES)
            self.note(self.checked, memoryview(os.pread(descriptor, wanted, self.start + self.checked)))

    def _wide_fields(self) -> bytes:
        """The extra field of zip64: those numbers that do not fit into 32 bits."""
        numbers = [self.size, self.size] if self.size >= _LARGE else []
        numbers += [self.position] if self.position >= _LARGE else []
        return struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers) if numbers else b""


def _placed(stem: str, sizes: dict[str, int]) -> dict[str, _Record]:
    """The records one after the other, in the archive's one folder."""
    records: dict[str, _Record] = {}
    position = 0
    for name, size in sizes.items():
        records[name] = _Record(f"{stem}/{name}".encode(), position, size)
        position = records[name].end
    return records


def _end(records: dict[str, _Record]) -> int:
    return records["version"].end


def _directory(records: dict[str, _Record]) -> bytes:
    """The central directory, the end record of zip64, its locator, and the old end record."""
    entries = b"".join(record.entry() for record in records.values())
    count, size, start = len(records), len(entries), _end(records)
    wide = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 0x031E, 45, 0, 0, count, count, size, start)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, start + size, 1)
    few = min(count, 0xFFFF)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, few, few, min(size, _LARGE), min(start, _LARGE), 0)
    return entries + wide + locator + end
