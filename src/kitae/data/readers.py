"""Readers of text and of JSON lines: a file becomes a stream of documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kitae.data.documents import Document, Field, Fields, Tally, did_you_mean
from kitae.data.lines import decode, read_lines
from kitae.errors import DataError
from kitae.recipe.sources import SourceConfig

Numbered = Iterator[tuple[int, str]]


def _decoded_lines(path: Path, name: str, tally: Tally) -> Numbered:
    for number, line in read_lines(path, name, tally):
        try:
            text = decode(line)
        except ValueError as error:
            tally.bad(f"{name}:{number}", str(error))
            continue
        yield number, text


def _whole(name: str, lines: Numbered, tally: Tally) -> Iterator[Document]:
    yield Document("\n".join(text for _, text in lines), name)


def _by_line(name: str, lines: Numbered, tally: Tally) -> Iterator[Document]:
    for number, text in lines:
        if text.strip():
            yield Document(text, f"{name}:{number}")
        else:
            tally.blank_lines += 1


def _by_paragraph(name: str, lines: Numbered, tally: Tally) -> Iterator[Document]:
    block: list[str] = []
    start = 0
    for number, text in lines:
        if text.strip():
            start = start if block else number
            block.append(text)
            continue
        tally.blank_lines += 1
        if block:
            yield Document("\n".join(block), f"{name}:{start}")
            block = []
    if block:
        yield Document("\n".join(block), f"{name}:{start}")


_GROUPINGS: dict[str, Callable[[str, Numbered, Tally], Iterator[Document]]] = {
    "file": _whole,
    "line": _by_line,
    "paragraph": _by_paragraph,
}


def read_text(
    path: Path, name: str, source: SourceConfig, tally: Tally, fields: Fields = ()
) -> Iterator[Document]:
    r"""Documents of a text file: the file, its lines, or its blocks between blank lines; \r\n becomes \n."""
    if fields:
        raise DataError(
            f"{name}: a text file has no field {fields[0].name!r}, which {fields[0].option} names; give JSON "
            "lines, CSV, Parquet or a saved data set"
        )
    return _GROUPINGS[source.document](name, _decoded_lines(path, name, tally), tally)


def read_jsonl(
    path: Path, name: str, source: SourceConfig, tally: Tally, fields: Fields = ()
) -> Iterator[Document]:
    """Documents of a file with one JSON object a line. A string is taken as it is, whatever it looks like."""
    for number, line in read_lines(path, name, tally):
        if not line.strip():
            tally.blank_lines += 1
            continue
        try:
            record = record_of(line, source.text_field)
            text = field_of(record, source.text_field)
            values = tuple(_value(record, field) for field in fields)
        except ValueError as error:
            tally.bad(f"{name}:{number}", str(error))
            continue
        yield Document(text, f"{name}:{number}", values)


def record_of(line: bytes, field: str) -> dict[str, Any]:
    """The JSON object of a line, in which `field` is wanted; raises `ValueError` that says what is wrong."""
    decoded = decode(line)
    try:
        value = json.loads(decoded)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON ({error.msg} at column {error.colno})") from error
    except RecursionError as error:
        raise ValueError("not valid JSON (nested too deeply)") from error
    except ValueError as error:
        raise ValueError("holds a number of too many digits") from error
    if not isinstance(value, dict):
        raise ValueError(f"a JSON {_kind(value)} where an object with {field!r} is needed, one object a line")
    return value


def field_of(record: Mapping[str, Any], field: str) -> str:
    """The string in a field of a record; raises `ValueError` that says what is wrong with it."""
    text = _present(record, field, "data.*.text_field")
    if not isinstance(text, str):
        raise ValueError(f"field {field!r} is a JSON {_kind(text)}, not a string")
    return checked(text)


def _value(record: Mapping[str, Any], field: Field) -> Any:
    raw = _present(record, field.name, field.option)
    if isinstance(raw, list | dict):
        raise ValueError(f"field {field.name!r} is a JSON {_kind(raw)} ({field.option} names it)")
    return field.read(checked(raw) if isinstance(raw, str) else raw)


def _present(record: Mapping[str, Any], field: str, option: str) -> Any:
    if field not in record:
        raise ValueError(f"there is no field {field!r}; {did_you_mean(field, record)} ({option} names it)")
    return record[field]


def checked(text: str) -> str:
    r"""The text itself; raises `ValueError` for half a surrogate pair ("\ud83d"), which is no text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"holds half a surrogate pair at character {error.start + 1}") from error
    return text


def _kind(value: object) -> str:
    kinds = {bool: "boolean", int: "number", float: "number", list: "array", dict: "object", str: "string"}
    return kinds.get(type(value), "null")
