"""Labelled texts on disk: their tokens one after the other, where each begins, and its label.

`ids.bin` holds T tokens, `starts.bin` [N + 1] where texts begin and the last one ends, `rows.bin` [N, 2] the
tokens of the first text of each, and its class. N texts, T tokens.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kitae.data.labelled_encode import COUNTS, Encoded
from kitae.data.pack import close_durably
from kitae.storage.files import write_synced

FORMAT = 1
META_FILE = "labelled.json"
IDS_FILE, STARTS_FILE, ROWS_FILE = "ids.bin", "starts.bin", "rows.bin"
ALL_FILE = "all-ids.bin"
STARTS_DTYPE, ROWS_DTYPE = np.dtype("<i8"), np.dtype("<i4")


@dataclass(frozen=True)
class LabelledMeta:
    """What `labelled.json` says."""

    format: int
    rows: int
    tokens: int
    sequence_length: int
    dtype: str
    """Type of an id on disk: uint16 or uint32, little-endian."""
    classes: list[str]
    """Names of the classes by number."""


@dataclass(frozen=True)
class Chosen:
    """The texts that a split ends with; n of them."""

    lengths: NDArray[np.int64]
    """[n] tokens of each."""
    labels: NDArray[np.int32]
    """[n] class of each."""
    counts: NDArray[np.int64]
    """[n, len(COUNTS)]."""


class LabelledWriter:
    """Appends texts to a folder; `close` makes it readable, with the texts that are chosen then."""

    def __init__(self, folder: Path, dtype: str) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._file = (folder / IDS_FILE).open("wb")
        self._lengths: list[NDArray[np.int64]] = []
        self._firsts: list[NDArray[np.int64]] = []
        self._labels: list[NDArray[np.int32]] = []
        self._counts: list[NDArray[np.int64]] = []
        self.tokens = 0
        self.rows = 0

    @property
    def written_bytes(self) -> int:
        """Bytes of all texts so far."""
        return self.tokens * self._dtype.itemsize + self.rows * (
            STARTS_DTYPE.itemsize + 2 * ROWS_DTYPE.itemsize
        )

    def append(self, texts: Encoded, labels: NDArray[np.int32]) -> None:
        """Append texts, none of them empty, with their labels [N] as `close` will know them."""
        self._file.write(texts.ids.astype(self._dtype).tobytes())
        self._lengths.append(texts.lengths)
        self._firsts.append(texts.firsts)
        self._labels.append(labels)
        self._counts.append(texts.counts)
        self.tokens += len(texts.ids)
        self.rows += len(texts.lengths)

    def close(
        self,
        places: NDArray[np.int64] | None,
        classes: list[str],
        class_of: NDArray[np.int32],
        sequence_length: int,
    ) -> Chosen:
        """Keep the texts at `places` (ascending), or all; `class_of` is the class of each label."""
        close_durably(self._file)
        lengths = _joined(self._lengths)
        chosen = np.arange(self.rows) if places is None else places
        if len(chosen) < self.rows:
            self._keep(_starts(lengths), chosen)
        labels = class_of[_joined(self._labels)[chosen]]
        starts = _starts(lengths[chosen])
        rows = np.stack([_joined(self._firsts)[chosen], labels], axis=1)
        write_synced(self._folder / STARTS_FILE, starts.astype(STARTS_DTYPE).tobytes())
        write_synced(self._folder / ROWS_FILE, rows.astype(ROWS_DTYPE).tobytes())
        meta = LabelledMeta(FORMAT, len(chosen), int(starts[-1]), sequence_length, self._dtype.name, classes)
        text = json.dumps(asdict(meta), indent=2, ensure_ascii=False)
        write_synced(self._folder / META_FILE, f"{text}\n".encode())
        counts = _joined(self._counts).reshape(-1, len(COUNTS))
        return Chosen(lengths[chosen], labels, counts[chosen])

    def _keep(self, starts: NDArray[np.int64], chosen: NDArray[np.int64]) -> None:
        """Write the tokens of the chosen texts anew, and delete the rest."""
        ids, everything = self._folder / IDS_FILE, self._folder / ALL_FILE
        ids.rename(everything)
        stored = np.memmap(everything, self._dtype, mode="r")
        with ids.open("wb") as file:
            for place in chosen:
                file.write(stored[starts[place] : starts[place + 1]].tobytes())
            close_durably(file)
        del stored
        everything.unlink()

    def abandon(self) -> None:
        """Close the file as it is; what a full disk refuses is lost, as the whole folder will be."""
        with contextlib.suppress(OSError):
            self._file.close()


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _starts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """[N + 1] where each text begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
