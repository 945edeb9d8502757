"""Readers of the text column of Parquet files and of folders that `datasets.save_to_disk` wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kitae.data.documents import Document, Tally, did_you_mean
from kitae.errors import DataError
from kitae.recipe.sources import SourceConfig

BATCH_ROWS = 1024
STATE_FILE = "state.json"
SPLITS_FILE = "dataset_dict.json"


def read_parquet(path: Path, name: str, source: SourceConfig, tally: Tally) -> Iterator[Document]:
    """Documents of a Parquet file, one row group after the other."""
    first = 1
    try:
        with pq.ParquetFile(path) as file:
            check_column(file.schema_arrow, source.text_field, name)
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=[source.text_field]):
                    yield from documents_of(batch.column(0), name, first, tally)
                    first += len(batch)
                tally.advance(path.stat().st_size // file.num_row_groups)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{name}: cannot be read as Parquet: {error}") from error


def read_arrow(path: Path, name: str, source: SourceConfig, tally: Tally) -> Iterator[Document]:
    """Documents of an Arrow stream file, as `datasets` saves them."""
    first = 1
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
            check_column(stream.schema, source.text_field, name)
            for batch in stream:
                yield from documents_of(batch.column(source.text_field), name, first, tally)
                first += len(batch)
        tally.advance(path.stat().st_size)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{name}: cannot be read as an Arrow stream: {error}") from error


def check_column(schema: Any, field: str, name: str) -> None:
    """Raise `DataError` unless the schema has a string column `field`."""
    if field not in schema.names:
        hint = did_you_mean(field, schema.names)
        raise DataError(f"{name}: there is no column {field!r}; {hint} (data.*.text_field names it)")
    kind = schema.field(field).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise DataError(
            f"{name}: column {field!r} holds {kind}, not strings (data.*.text_field names the column)"
        )


def documents_of(column: Any, name: str, first: int, tally: Tally) -> Iterator[Document]:
    """Documents of a column whose first row has the number `first`; a null or undecodable value is bad."""
    for row, value in enumerate(_values(column), start=first):
        if isinstance(value, str):
            yield Document(value, f"{name} row {row}")
        else:
            tally.bad(f"{name} row {row}", "the text is null" if value is None else "not valid UTF-8")


def _values(column: Any) -> list[str | bytes | None]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_value(scalar) for scalar in column]


def _value(scalar: Any) -> str | bytes | None:
    try:
        return scalar.as_py()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        return bytes(scalar.as_buffer())


def is_saved_dataset(folder: Path) -> bool:
    """Whether `datasets.save_to_disk` wrote the folder."""
    return (folder / STATE_FILE).is_file() or (folder / SPLITS_FILE).is_file()


def saved_files(folder: Path, source: SourceConfig, name: str) -> list[Path]:
    """The Arrow files of the wanted split, in the order that the folder states; raises `DataError`."""
    if (folder / SPLITS_FILE).is_file():
        splits = _load(folder / SPLITS_FILE)["splits"]
        if source.split not in splits:
            raise DataError(
                f"{name}: there is no split {source.split!r}; {did_you_mean(source.split, splits)}"
            )
        folder = folder / source.split
    state = _load(folder / STATE_FILE)
    # A single data set need not know the name of its split: only one that was asked for can be wrong.
    stated = state.get("_split")
    if stated and "split" in source.model_fields_set and source.split not in (stated, folder.name):
        raise DataError(f"{name}: holds the split {stated!r}, not {source.split!r}")
    if state.get("_indices_data_files"):
        raise DataError(f"{name}: its rows go through an index file; save it again with a current `datasets`")
    files = [folder / entry["filename"] for entry in state["_data_files"]]
    for file in files:
        if not file.is_file():
            raise DataError(f"{name}: {file.name} is named in {STATE_FILE} but is not there")
    return files


def _load(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text("utf-8"))  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
