"""Files that grow at their end: read from there, without reading the rest."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

_BLOCK = 1 << 16
_MOST_BYTES = 1 << 22
"""How far back records are looked for: many thousand lines."""

Record = dict[str, Any]


def lines_from_end(path: Path, most_bytes: int | None = None, end: int | None = None) -> Iterator[str]:
    """The lines of a file, the last one first, without their line ends; none where there is no file.

    After `most_bytes` it stops, at the beginning of a line. With `end` the file is taken to end there.
    """
    try:
        file = path.open("rb")
    except OSError:
        return
    with file:
        end = file.seek(0, os.SEEK_END) if end is None else end
        first = max(0, end - most_bytes) if most_bytes is not None else 0
        rest = b""
        at = end
        while at > first:
            size = min(_BLOCK, at - first)
            at -= size
            file.seek(at)
            block = file.read(size) + rest
            rest, *lines = block.split(b"\n")
            if at + size == end and lines and not lines[-1]:
                lines.pop()  # behind the last line end
            for line in reversed(lines):
                yield line.decode(errors="replace")
        if end and first == 0:
            yield rest.decode(errors="replace")


def end_of_lines(path: Path) -> int:
    """How many bytes of a file belong to whole lines."""
    with path.open("rb") as file:
        at = file.seek(0, os.SEEK_END)
        while at > 0:
            size = min(_BLOCK, at)
            file.seek(at - size)
            found = file.read(size).rfind(b"\n")
            if found >= 0:
                return at - size + found + 1
            at -= size
    return 0


def last_lines(path: Path, count: int, end: int | None = None) -> list[str]:
    """The last lines of a file, in order; with `end`, of its first bytes."""
    return list(islice(lines_from_end(path, end=end), count))[::-1]


def last_records(path: Path, kind: str | None, count: int) -> list[Record]:
    """The last records of a kind (None: without one) in a file of JSON lines, in order.

    What is half-written is passed over.
    """
    found: list[Record] = []
    for line in lines_from_end(path, _MOST_BYTES):
        if len(found) == count:
            break
        record = _record(line)
        if record and record.get("kind") == kind:
            found.append(record)
    return found[::-1]


def first_record(path: Path) -> Record:
    """The first line of a file of JSON lines; empty where there is none."""
    try:
        with path.open(encoding="utf-8") as file:
            return _record(file.readline())
    except (OSError, UnicodeDecodeError):
        return {}


def _record(line: str) -> Record:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
