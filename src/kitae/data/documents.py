"""A document of text, and the count of what a source gave and did not give."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from kitae.errors import DataError

KEPT_EXAMPLES = 5


@dataclass(frozen=True)
class Document:
    """A text and where it stands: `file`, `file:line` or `file row N`."""

    text: str
    where: str


@dataclass
class Tally:
    """What one source gave; `bad` stops or counts, as the recipe says."""

    on_bad_line: Literal["stop", "skip"] = "stop"
    advance: Callable[[int], None] = lambda num_bytes: None
    """Told of each piece of a file that was read, in bytes on disk."""
    documents: int = 0
    blank_lines: int = 0
    bad_lines: int = 0
    bad_examples: list[str] = field(default_factory=list)

    def bad(self, where: str, why: str) -> None:
        """Count a broken line or row; raises `DataError` when the recipe says stop."""
        if self.on_bad_line == "stop":
            raise DataError(f"{where}: {why}; mend it, or set data.on_bad_line: skip to leave such lines out")
        self.bad_lines += 1
        if len(self.bad_examples) < KEPT_EXAMPLES:
            self.bad_examples.append(f"{where}: {why}")


def did_you_mean(wanted: str, present: Iterable[str]) -> str:
    """What to say behind `there is no 'wanted'`: the nearest name that is there, and the names."""
    names = sorted(present)
    near = difflib.get_close_matches(wanted, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}there are: {', '.join(names[:20]) or 'none'}"
