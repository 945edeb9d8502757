"""Writing packed data: one running stream of tokens in bounded shards, and where each document starts.

The stream is cut into rows only when it is read, so nothing is lost between documents, batches or shards:
all tokens but the remainder behind the last full row are in rows, and the remainder is stated.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from kitae.storage.files import write_synced

FORMAT = 1
META_FILE = "packed.json"
DOCUMENTS_FILE = "documents.bin"
DOCUMENT_DTYPE = np.dtype("<i8")
SHARD_BYTES = 1 << 28


@dataclass(frozen=True)
class PackedMeta:
    """What `packed.json` says."""

    format: int
    dtype: str
    """Type of a token on disk: uint16 or uint32, little-endian."""
    shard_tokens: int
    """Tokens in each shard but the last."""
    tokens: int
    documents: int
    sequence_length: int
    document_mask: bool
    pad_remainder: bool
    """Whether the tokens behind the last full row make one more, padded row."""

    @property
    def remainder(self) -> int:
        """Tokens that are in no row."""
        return 0 if self.pad_remainder else self.tokens % self.sequence_length

    @property
    def rows(self) -> int:
        """Rows that can be read."""
        full, rest = divmod(self.tokens, self.sequence_length)
        return full + (1 if rest and self.pad_remainder else 0)

    @property
    def padding(self) -> int:
        """Positions of the rows that hold no token."""
        return self.rows * self.sequence_length + self.remainder - self.tokens

    @property
    def num_shards(self) -> int:
        """Number of token files."""
        return -(-self.tokens // self.shard_tokens)


def token_dtype(vocab_size: int) -> str:
    """`uint16` when every id of the vocabulary fits, else `uint32`."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def shard_name(index: int) -> str:
    """File name of a token shard."""
    return f"tokens-{index:05d}.bin"


class PackWriter:
    """Appends documents to a folder; `close` makes it readable."""

    def __init__(self, folder: Path, dtype: str, shard_tokens: int | None = None) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._shard_tokens = shard_tokens or SHARD_BYTES // self._dtype.itemsize
        self._index: BinaryIO = (folder / DOCUMENTS_FILE).open("wb")
        self._shard: BinaryIO | None = None
        self.tokens = 0
        self.documents = 0

    def append(self, ids: NDArray[np.uint32], lengths: NDArray[np.int64]) -> None:
        """Append documents: ids [T] one after the other, lengths [N] all above 0, with sum T."""
        assert lengths.sum() == len(ids), "lengths do not add up to the ids"
        starts = self.tokens + np.cumsum(lengths) - lengths
        self._index.write(starts.astype(DOCUMENT_DTYPE).tobytes())
        self.documents += len(lengths)
        while len(ids):
            room = self._shard_tokens - self.tokens % self._shard_tokens
            self._open_shard().write(ids[:room].astype(self._dtype).tobytes())
            self.tokens += len(ids[:room])
            ids = ids[room:]

    def _open_shard(self) -> BinaryIO:
        index, used = divmod(self.tokens, self._shard_tokens)
        if used == 0:
            self._close_shard()
            self._shard = (self._folder / shard_name(index)).open("wb")
        assert self._shard is not None
        return self._shard

    def _close_shard(self) -> None:
        if self._shard is not None:
            close_durably(self._shard)
            self._shard = None

    def close(self, *, sequence_length: int, document_mask: bool, pad_remainder: bool) -> PackedMeta:
        """Write `packed.json` and make all files durable."""
        self._close_shard()
        close_durably(self._index)
        meta = PackedMeta(
            format=FORMAT,
            dtype=self._dtype.name,
            shard_tokens=self._shard_tokens,
            tokens=self.tokens,
            documents=self.documents,
            sequence_length=sequence_length,
            document_mask=document_mask,
            pad_remainder=pad_remainder,
        )
        write_synced(self._folder / META_FILE, f"{json.dumps(asdict(meta), indent=2)}\n".encode())
        return meta

    def abandon(self) -> None:
        """Close the files as they are; what a full disk refuses is lost, as the whole folder will be."""
        for file in (self._shard, self._index):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()


def close_durably(file: BinaryIO) -> None:
    """Sync a file, so that it outlives a power cut, and close it."""
    file.flush()
    os.fsync(file.fileno())
    file.close()
