"""Readers of the text column of Parquet files and of folders that `datasets.save_to_disk` wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kitae.data.documents import Document, Fields, Tally, did_you_mean
from kitae.errors import DataError
from kitae.recipe.sources import SourceConfig

BATCH_ROWS = 1024
STATE_FILE = "state.json"
SPLITS_FILE = "dataset_dict.json"


def read_parquet(
    path: Path, name: str, source: SourceConfig, tally: Tally, fields: Fields = ()
) -> Iterator[Document]:
    """Documents of a Parquet file, one row group after the other."""
    first = 1
    names = wanted_columns(source, fields)
    try:
        with pq.ParquetFile(path) as file:
            check_columns(file.schema_arrow, source, fields, name)
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=names):
                    yield from documents_of(batch, source, fields, name, first, tally)
                    first += len(batch)
                tally.advance(path.stat().st_size // file.num_row_groups)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{name}: cannot be read as Parquet: {error}") from error


def read_arrow(
    path: Path, name: str, source: SourceConfig, tally: Tally, fields: Fields = ()
) -> Iterator[Document]:
    """Documents of an Arrow stream file, as `datasets` saves them."""
    first = 1
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
            check_columns(stream.schema, source, fields, name)
            for batch in stream:
                yield from documents_of(batch, source, fields, name, first, tally)
                first += len(batch)
        tally.advance(path.stat().st_size)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{name}: cannot be read as an Arrow stream: {error}") from error


def wanted_columns(source: SourceConfig, fields: Fields) -> list[str]:
    """The columns to read, each once; the text's own is the first."""
    return list(dict.fromkeys([source.text_field, *(field.name for field in fields)]))


def check_columns(schema: Any, source: SourceConfig, fields: Fields, name: str) -> None:
    """Raise `DataError` unless the schema has a string column for the text, and those of all fields."""
    for column, option in ((source.text_field, "data.*.text_field"), *((f.name, f.option) for f in fields)):
        if column not in schema.names:
            hint = did_you_mean(column, schema.names)
            raise DataError(f"{name}: there is no column {column!r}; {hint} ({option} names it)")
    kind = schema.field(source.text_field).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise DataError(
            f"{name}: column {source.text_field!r} holds {kind}, not strings "
            "(data.*.text_field names the column)"
        )


def documents_of(
    table: Any, source: SourceConfig, fields: Fields, name: str, first: int, tally: Tally
) -> Iterator[Document]:
    """Documents of a table whose first row has the number `first`; a null or undecodable value is bad."""
    texts = _values(table.column(source.text_field))
    others = [_values(table.column(field.name)) for field in fields]
    for row, (text, *raw) in enumerate(zip(texts, *others, strict=True), start=first):
        where = f"{name} row {row}"
        if not isinstance(text, str):
            tally.bad(where, "the text is null" if text is None else "not valid UTF-8")
            continue
        try:
            values = tuple(field.read(value) for field, value in zip(fields, raw, strict=True))
        except ValueError as error:
            tally.bad(where, str(error))
            continue
        yield Document(text, where, values)


def _values(column: Any) -> list[Any]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_value(scalar) for scalar in column]


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
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
