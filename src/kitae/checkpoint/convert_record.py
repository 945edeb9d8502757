"""The record in a converted folder: from what it was made and how, so that the same is not done twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kitae.checkpoint.coverage import listed
from kitae.errors import WeightsError
from kitae.storage.files import replace_file

RECORD = "kitae_conversion.json"
_ELSEWHERE = "name another folder, or move this one away"


@dataclass(frozen=True)
class Record:
    """What a conversion was made of, and what came out."""

    made: Mapping[str, Any]
    """Source, options and format of the result; equal for the same conversion of the same files."""
    proof: Mapping[str, Any]
    result: Mapping[str, int]
    """Sizes of all files, in bytes, by their path in the folder."""

    def encode(self) -> bytes:
        """The file's content."""
        body = {"made": self.made, "proof": self.proof, "result": self.result}
        return (json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode()

    def write(self, folder: Path) -> None:
        """Write it into the folder, durably."""
        replace_file(folder / RECORD, self.encode())


def earlier(folder: Path, made: Mapping[str, Any]) -> Record | None:
    """The record when `folder` is already the complete result of this conversion; None when it is free.

    WeightsError when something else is there.
    """
    if not folder.exists() and not folder.is_symlink():
        return None
    if not folder.is_dir():
        raise WeightsError(f"{folder} is a file; name another folder for the result")
    if not any(folder.iterdir()):
        if folder.is_mount():
            raise WeightsError(f"{folder} is a mounted disk, which stays; name a folder inside it")
        return None
    record = _read(folder)
    if record is None:
        raise WeightsError(
            f"{folder} exists and is no result of kitae convert, so it is left alone; {_ELSEWHERE}"
        )
    differing = changes(record.made, json.loads(json.dumps(made)))
    if differing:
        raise WeightsError(
            f"{folder} is the result of another conversion ({'; '.join(differing)}); {_ELSEWHERE}"
        )
    if record.result != sizes(folder):
        raise WeightsError(
            f"{folder} is the result of this conversion, but its files were changed since; {_ELSEWHERE}"
        )
    return record


def sizes(folder: Path) -> dict[str, int]:
    """Sizes of all files below a folder but the record, in bytes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != RECORD)
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


def stamps(paths: Iterable[Path]) -> dict[str, list[int]]:
    """Size and time of change, by path: another content under the same name is told by them.

    Those of a folder are the sum and the latest of its files; a path that is gone has none.
    """
    return {str(path.absolute()): _stamp(path) for path in sorted(paths)}


def _stamp(path: Path) -> list[int]:
    try:
        stats = [file.stat() for file in (path.iterdir() if path.is_dir() else [path])]
    except FileNotFoundError:
        return []
    return [sum(one.st_size for one in stats), max((one.st_mtime_ns for one in stats), default=0)]


def digest(value: Any) -> str:
    """A short hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs, in words; files only by their names."""
    found: list[str] = []
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if old == new or (name == "source files" and found):
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            files = [file for file in dict.fromkeys([*old, *new]) if old.get(file) != new.get(file)]
            found.append(f"{name}: {listed(files, 3)} changed")
        else:
            found.append(f"{name}: {old} there, {new} now")
    return found


def _read(folder: Path) -> Record | None:
    try:
        body = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return Record(body["made"], body["proof"], body["result"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
