"""Writing rows for masked-language training: flat files, to be read by row.

`ids.bin` [N, S] and `rows.bin` [N, 3] are always there. Masks are either drawn when a row is read, from
`starts.bin` [N, S / 8] with a bit where a word begins, or were drawn by whoever made the rows:
`positions.bin` and `labels.bin` [N, P]. N rows, S positions, P predictions.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kitae.data.masking import Hiding
from kitae.data.pack import close_durably
from kitae.data.rows import IntArray
from kitae.storage.files import write_synced

FORMAT = 1
META_FILE = "masked.json"
ROW_DTYPE = np.dtype("<i4")
ROW_FIELDS = 3


@dataclass(frozen=True)
class MaskedMeta:
    """What `masked.json` says."""

    format: int
    rows: int
    sequence_length: int
    dtype: str
    """Type of an id on disk: uint16 or uint32, little-endian."""
    max_predictions: int
    hiding: Hiding | None
    """How masks are drawn; None where the rows came with theirs."""

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> MaskedMeta:
        """What the content of `masked.json` says; raises `TypeError`."""
        hiding = content.get("hiding")
        return cls(**{**content, "hiding": None if hiding is None else Hiding.from_json(hiding)})

    def files(self) -> dict[str, tuple[np.dtype[Any], int]]:
        """Name of each file -> type and number of its columns."""
        size, most = self.sequence_length, self.max_predictions
        ids = np.dtype(self.dtype).newbyteorder("<")
        own = {"starts.bin": (np.dtype("u1"), -(-size // 8))}
        given = {"positions.bin": (ROW_DTYPE, most), "labels.bin": (ROW_DTYPE, most)}
        common = {"ids.bin": (ids, size), "rows.bin": (ROW_DTYPE, ROW_FIELDS)}
        return {**common, **(given if self.hiding is None else own)}

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in all files."""
        return sum(dtype.itemsize * columns for dtype, columns in self.files().values())


@dataclass(frozen=True)
class RawRows:
    """Rows as they are on disk; n rows."""

    ids: NDArray[Any]
    """[n, S] 0 behind the end; with given masks, already hidden."""
    shape: NDArray[Any]
    """[n, 3] length, tokens of the first text with what frames it, and `next_sentence`."""
    starts: NDArray[np.bool_] | None = None
    """[n, S] where words begin, and at special tokens."""
    positions: IntArray | None = None
    """[n, P] see `MaskedRows`."""
    labels: IntArray | None = None
    """[n, P]."""

    def select(self, chosen: NDArray[np.bool_]) -> RawRows:
        """The rows for which `chosen` [n] is true."""
        return RawRows(*(None if value is None else value[chosen] for value in vars(self).values()))  # type: ignore[arg-type]

    def columns(self) -> dict[str, NDArray[Any]]:
        """What goes into each file."""
        named = {"ids.bin": self.ids, "rows.bin": self.shape}
        if self.starts is not None:
            named["starts.bin"] = np.packbits(self.starts, axis=1)
        if self.positions is not None and self.labels is not None:
            named |= {"positions.bin": self.positions, "labels.bin": self.labels}
        return named


class MaskedWriter:
    """Appends rows to a folder; `close` makes it readable."""

    def __init__(self, folder: Path, meta: MaskedMeta) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._meta = meta
        self._files: dict[str, BinaryIO] = {name: (folder / name).open("wb") for name in meta.files()}
        self.rows = 0

    @property
    def written_bytes(self) -> int:
        """Bytes of all rows so far."""
        return self.rows * self._meta.row_bytes

    def append(self, rows: RawRows) -> None:
        """Append rows of the shapes that the meta states."""
        columns = rows.columns()
        for name, (dtype, width) in self._meta.files().items():
            assert columns[name].shape == (len(rows.ids), width), name
            self._files[name].write(np.ascontiguousarray(columns[name], dtype).tobytes())
        self.rows += len(rows.ids)

    def close(self) -> MaskedMeta:
        """Write `masked.json` and make all files durable."""
        for file in self._files.values():
            close_durably(file)
        content = {**asdict(self._meta), "rows": self.rows}
        write_synced(self._folder / META_FILE, f"{json.dumps(content, indent=2)}\n".encode())
        return MaskedMeta(**{**vars(self._meta), "rows": self.rows})

    def abandon(self) -> None:
        """Close the files as they are; what a full disk refuses is lost, as the whole folder will be."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()
