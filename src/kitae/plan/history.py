"""How trainings on this machine went against their plans: one JSON object a line, in the state folder.

Lines are only ever appended, under a lock; when there are many, the oldest go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from kitae.storage.disk import storage_errors
from kitae.storage.files import replace_file
from kitae.storage.lock import exclusive
from kitae.storage.state import state_folder

FORMAT = 1
KEPT, MOST = 1000, 1200
"""Lines that stay when there are more than the second number."""


@dataclass(frozen=True)
class Key:
    """Of which trainings' experience another one can make use."""

    machine: str
    family: str
    """decoder, masked-lm or classification."""
    precision: str
    ranks: int
    cut: int
    """Ranks that share one copy of the model."""


@dataclass(frozen=True)
class Entry:
    """One phase of one attempt of a training."""

    time: str
    """Of its end, ISO 8601."""
    run: str
    """Folder."""
    attempt: int
    phase: str | None
    machine: str
    family: str
    precision: str
    ranks: int
    cut: int
    threads: int
    """Of a process."""
    steps: int
    """Updates that the step time is the median of."""
    counts: Mapping[str, float]
    """What an update consists of (`plan.parts`)."""
    predicted: Mapping[str, float | None]
    actual: Mapping[str, float | None]
    load: float | None = None
    """Processes that wanted to run at the end, on average over a minute."""

    @property
    def key(self) -> Key:
        """Whom it is experience for."""
        return Key(self.machine, self.family, self.precision, self.ranks, self.cut)


def history_path() -> Path:
    """Where the history of this user's trainings lies."""
    return state_folder() / "history.jsonl"


def append(entries: Sequence[Entry], path: Path | None = None) -> None:
    """Add lines. Raises `StorageError`."""
    path = path or history_path()
    lines = [json.dumps({"format": FORMAT, **asdict(one)}, allow_nan=False) + "\n" for one in entries]
    with storage_errors(path), exclusive(path.with_name(f".{path.name}.lock")):
        with path.open("a+b") as file:
            file.seek(0)
            before = file.read()
            # What a kill left of a line is no part of the next one.
            torn = b"\n" if before and not before.endswith(b"\n") else b""
            file.write(torn + "".join(lines).encode())
        whole = path.read_bytes().splitlines(keepends=True)
        if len(whole) > MOST:
            replace_file(path, b"".join(whole[-KEPT:]))


def read(path: Path | None = None) -> list[Entry]:
    """All lines that can be read, the oldest first; none where there is no history."""
    try:
        text = (path or history_path()).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return list(_entries(text.splitlines()))


def _entries(lines: Sequence[str]) -> Iterator[Entry]:
    names = {one.name for one in fields(Entry)}
    for line in lines:
        try:
            values: dict[str, Any] = json.loads(line)
            if values.get("format") == FORMAT:
                yield Entry(**{name: value for name, value in values.items() if name in names})
        except (ValueError, TypeError, AttributeError):  # torn by a kill, or not ours
            continue
