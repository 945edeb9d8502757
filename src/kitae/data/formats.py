"""The table of file formats: which endings each has, and what reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kitae.data.arrow import read_arrow, read_parquet
from kitae.data.delimited import read_delimited
from kitae.data.documents import Document, Fields, Tally
from kitae.data.hdf5_rows import read_text_of_shard
from kitae.data.lines import COMPRESSIONS
from kitae.data.readers import read_jsonl, read_text
from kitae.recipe.sources import SourceConfig


class Reader(Protocol):
    """Turns a file into documents; `name` is how messages call it, `fields` are read beside the text."""

    def __call__(
        self, path: Path, name: str, source: SourceConfig, tally: Tally, fields: Fields = ()
    ) -> Iterator[Document]:
        """The documents in their order; raises `DataError`."""
        ...


@dataclass(frozen=True)
class Format:
    """A file format; `options` are the fields of `SourceConfig` that change what it reads."""

    read: Reader
    suffixes: tuple[str, ...]
    options: tuple[str, ...]
    compressible: bool = False
    when_named: bool = False
    """In a folder, such files are only read when the recipe names the format."""


FORMATS: dict[str, Format] = {
    "text": Format(read_text, (".txt",), ("document",), compressible=True),
    "jsonl": Format(read_jsonl, (".jsonl", ".json"), ("text_field",), compressible=True),
    "csv": Format(read_delimited, (".csv", ".tsv"), ("text_field",), compressible=True),
    "parquet": Format(read_parquet, (".parquet",), ("text_field",)),
    "datasets": Format(read_arrow, (".arrow",), ("text_field",)),
    "hdf5": Format(read_text_of_shard, (".hdf5", ".h5"), (), when_named=True),
}


def format_of(path: Path) -> str | None:
    """Name of the format that the file's ending stands for; None when no format has it."""
    last = path.suffix.lower()
    compressed = last in COMPRESSIONS
    ending = Path(path.stem).suffix.lower() if compressed else last
    for name, entry in FORMATS.items():
        if ending in entry.suffixes and (entry.compressible or not compressed):
            return name
    return None


def supported_endings() -> str:
    """The endings that are read, for messages."""
    endings = [suffix for entry in FORMATS.values() for suffix in entry.suffixes]
    packed = [ending for ending in COMPRESSIONS if ending]
    return f"{', '.join(endings)} (text, JSON lines and CSV also with {' or '.join(packed)})"
