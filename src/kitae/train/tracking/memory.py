"""`tracking.json` in a run's folder: by which id each tracker knows the run, and which steps it was given."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kitae.storage.files import replace_file

FILE = "tracking.json"


@dataclass
class Entry:
    """One tracker's."""

    place: str
    id: str | None = None
    shown: str = ""
    sent: dict[str, int] = field(default_factory=dict)
    """By group of names, the last step."""


class Memory:
    """What is kept for all trackers of a run; they work in threads of their own."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._lock = threading.Lock()
        self._entries = _read(self._path)

    def entry(self, tracker: str, place: str) -> Entry:
        """What is kept of a tracker; a new one when it was tracked elsewhere before."""
        kept = self._entries.get(tracker)
        return kept if kept is not None and kept.place == place else Entry(place)

    def keep(self, tracker: str, entry: Entry) -> None:
        """Write it down."""
        with self._lock:
            self._entries[tracker] = entry
            content = {name: asdict(one) for name, one in self._entries.items()}
            replace_file(self._path, (json.dumps(content, indent=1) + "\n").encode())


def _read(path: Path) -> dict[str, Entry]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {name: Entry(**values) for name, values in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
