r"""Reader of CSV and TSV files: the first line names the columns, and a quoted value may hold line breaks.

RFC 4180, with \n or \r\n between records. Only the columns that are wanted have to be right.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from kitae.data.documents import Document, Field, Fields, Tally, did_you_mean
from kitae.data.lines import COMPRESSIONS, read_lines
from kitae.errors import DataError
from kitae.recipe.sources import SourceConfig

LONGEST_VALUE = (1 << 31) - 1
"""Characters; Python's own limit of 131,072 is less than a long document has."""


def read_delimited(
    path: Path, name: str, source: SourceConfig, tally: Tally, fields: Fields = ()
) -> Iterator[Document]:
    """Documents of a file with one record a line; values are separated by commas, or by tabs in .tsv."""
    csv.field_size_limit(LONGEST_VALUE)
    # A byte that is no UTF-8 spoils its own record only.
    lines = (line.decode("utf-8", "surrogateescape") + "\n" for _, line in read_lines(path, name, tally))
    records = csv.reader(lines, delimiter=_delimiter(path), strict=True)
    wanted = [Field(source.text_field, "data.*.text_field", lambda raw: raw), *fields]
    numbered = _numbered(records, name)
    header = next(numbered, (1, []))[1]
    if source.text_field not in header:
        _check_separator(header, _delimiter(path), name)
    places = _places(header, wanted, name)
    for number, record in numbered:
        if not record:
            tally.blank_lines += 1
            continue
        try:
            text, *values = _values(record, header, wanted, places)
        except ValueError as error:
            tally.bad(f"{name}:{number}", str(error))
            continue
        yield Document(text, f"{name}:{number}", tuple(values))


def _delimiter(path: Path) -> str:
    inner = Path(path.stem) if path.suffix.lower() in COMPRESSIONS and path.suffix else path
    return "\t" if inner.suffix.lower() == ".tsv" else ","


def _numbered(records: Iterator[list[str]], name: str) -> Iterator[tuple[int, list[str]]]:
    """Each record and the line that it begins on."""
    number = 1
    try:
        for record in records:
            yield number, record
            number = records.line_num + 1  # type: ignore[attr-defined]
    except csv.Error as error:
        raise DataError(
            f"{name}:{number}: not valid CSV from here on ({error}); mend its quotes, or write it anew"
        ) from error


def _check_separator(header: Sequence[str], delimiter: str, name: str) -> None:
    """Raise `DataError` for a single column whose name looks like several."""
    others = [one for one in ",;\t|" if one != delimiter and len(header) == 1 and one in header[0]]
    if others:
        raise DataError(
            f"{name}: the columns are separated by {others[0]!r}, and kitae reads {delimiter!r}; write the "
            "file anew (commas in .csv, tabs in .tsv)"
        )


def _places(header: Sequence[str], wanted: Sequence[Field], name: str) -> list[int]:
    """The column of each field; raises `DataError`."""
    for field in wanted:
        if field.name not in header:
            hint = did_you_mean(field.name, header)
            raise DataError(f"{name}: there is no column {field.name!r}; {hint} ({field.option} names it)")
        if list(header).count(field.name) > 1:
            raise DataError(f"{name}: two columns are called {field.name!r}; give each a name of its own")
    return [list(header).index(field.name) for field in wanted]


def _values(
    record: Sequence[str], header: Sequence[str], wanted: Sequence[Field], places: Sequence[int]
) -> list[str]:
    if len(record) != len(header):
        raise ValueError(f"{len(record)} values where the first line names {len(header)} columns")
    return [field.read(_checked(record[place])) for field, place in zip(wanted, places, strict=True)]


def _checked(value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("not valid UTF-8") from error
    return value
