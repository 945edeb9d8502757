r"""Lines of a file, compressed or not, split on \n only.

`str.splitlines` and pyarrow's block reader also split on U+2028, U+0085 and the like, which may stand
inside a JSON string; a binary stream does not. Memory is bounded by the longest line, and time is linear in
it.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import zstandard

from kitae.data.documents import Tally
from kitae.errors import DataError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK_BYTES = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class CountedFile(io.RawIOBase):
    """A file that tells how many bytes on disk have been read."""

    def __init__(self, path: Path, advance: Callable[[int], None]) -> None:
        self._file = io.FileIO(path)
        self._advance = advance

    def readable(self) -> bool:
        """True: it can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        """Read into `buffer`; returns the number of bytes."""
        count = self._file.readinto(buffer)
        self._advance(count or 0)
        return count

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


class ZstdFrames(io.RawIOBase):
    """The content of any number of zstd frames; a truncated last frame is an error, not the end."""

    def __init__(self, compressed: BinaryIO) -> None:
        self._compressed = compressed
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._rest = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """True: it can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read into `buffer`; raises `EOFError` when the last frame is cut off."""
        while not self._ready:
            if not self._fill():
                return 0
        target = memoryview(buffer).cast("B")
        count = min(len(target), len(self._ready))
        target[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _fill(self) -> bool:
        # Small pieces: a piece of highly compressed text may grow a thousandfold.
        piece = self._rest or self._compressed.read(1 << 14)
        if not piece:
            if self._frame is not None:
                raise EOFError("the last zstd frame is cut off")
            return False
        frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
        self._ready = memoryview(frame.decompress(piece))
        self._frame, self._rest = (None, frame.unused_data) if frame.eof else (frame, b"")
        return True

    def close(self) -> None:
        """Close the compressed file too."""
        self._compressed.close()
        super().close()


def _plain(stream: BinaryIO) -> BinaryIO:
    return stream


def _gzip(stream: BinaryIO) -> BinaryIO:
    return io.BufferedReader(gzip.GzipFile(fileobj=stream), CHUNK_BYTES)


def _zstd(stream: BinaryIO) -> BinaryIO:
    return io.BufferedReader(ZstdFrames(stream), CHUNK_BYTES)


COMPRESSIONS: dict[str, Callable[[BinaryIO], BinaryIO]] = {"": _plain, ".gz": _gzip, ".zst": _zstd}
"""Ending of the file name, and what opens the stream behind it."""


def read_lines(path: Path, name: str, tally: Tally) -> Iterator[tuple[int, bytes]]:
    r"""Number (from 1) and bytes of each line, without \n or \r\n and without a byte order mark.

    Raises `DataError` when the file cannot be read or is damaged.
    """
    number = 0
    try:
        with io.BufferedReader(CountedFile(path, tally.advance), CHUNK_BYTES) as stream:
            opener = COMPRESSIONS.get(path.suffix.lower(), _plain)
            for number, line in enumerate(opener(stream), start=1):
                yield number, _content(line, first=number == 1)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise DataError(
            f"{name}: cannot be read beyond line {number}: {error}; fetch or pack the file again"
        ) from error


def _content(line: bytes, *, first: bool) -> bytes:
    if first:
        line = line.removeprefix(BYTE_ORDER_MARK)
    return line.removesuffix(b"\n").removesuffix(b"\r")


def decode(line: bytes) -> str:
    """The text of a line; raises `ValueError` naming the first byte that is not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"not valid UTF-8 (byte {line[error.start]:#04x} at column {error.start + 1})"
        ) from error
