"""All sentences of a split on disk, while its rows are made: texts are larger than memory.

Rows need a document beside any other one, so they can only be made when all of them have been read.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kitae.data.packed import map_numbers
from kitae.data.rows import IntArray
from kitae.data.sentence_encoder import SentenceBatch

_OFFSET = np.dtype("<i8")


class SentenceWriter:
    """Appends documents to a folder; `close` gives them back to be read."""

    def __init__(self, folder: Path, dtype: str) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._dtype = np.dtype(dtype).newbyteorder("<")
        names = ("ids", "starts", "sentences", "documents")
        self._files: dict[str, BinaryIO] = {name: (folder / name).open("wb") for name in names}
        self.tokens = self.sentences = self.documents = 0

    def append(self, batch: SentenceBatch) -> None:
        """Append documents, none of them empty."""
        self._write("ids", batch.ids.astype(self._dtype))
        self._write("starts", batch.starts)
        self._write("sentences", _begins(self.tokens, batch.lengths))
        self._write("documents", _begins(self.sentences, batch.sentences))
        self.tokens += len(batch.ids)
        self.sentences += len(batch.lengths)
        self.documents += len(batch.sentences)

    def close(self) -> SentenceStore:
        """Finish the files; what was appended, to be read."""
        self._write("sentences", np.array([self.tokens], _OFFSET))
        self._write("documents", np.array([self.sentences], _OFFSET))
        self.abandon()
        return SentenceStore(
            map_numbers(self._folder / "ids", self._dtype, self.tokens),
            map_numbers(self._folder / "starts", np.dtype(np.bool_), self.tokens),
            map_numbers(self._folder / "sentences", _OFFSET, self.sentences + 1),
            map_numbers(self._folder / "documents", _OFFSET, self.documents + 1),
        )

    def abandon(self) -> None:
        """Close the files as they are."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()

    def _write(self, name: str, numbers: NDArray[Any]) -> None:
        self._files[name].write(numbers.tobytes())


def _begins(before: int, lengths: IntArray) -> NDArray[Any]:
    return (before + np.cumsum(lengths) - lengths).astype(_OFFSET)


class SentenceStore:
    """Documents by number, as places in one run of tokens. D documents, M sentences, T tokens."""

    def __init__(
        self, ids: NDArray[Any], starts: NDArray[np.bool_], sentences: NDArray[Any], documents: NDArray[Any]
    ) -> None:
        self.ids = ids
        """[T]."""
        self.starts = starts
        """[T] where words begin."""
        self._sentences = sentences
        self._documents = documents

    def __len__(self) -> int:
        return len(self._documents) - 1

    def places(self, document: int) -> list[int]:
        """Where the document's sentences begin, and where the last one ends."""
        first, end = self._documents[document : document + 2]
        found: list[int] = self._sentences[first : end + 1].tolist()
        return found

    def several(self) -> bool:
        """Whether any document has more than one sentence."""
        return len(self._sentences) > len(self._documents)
