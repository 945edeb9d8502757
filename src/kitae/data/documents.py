"""A document of text, and the count of what a source gave and did not give."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kitae.errors import DataError

KEPT_EXAMPLES = 5
SKIPPING = ", or set data.on_bad_line: skip to leave such lines out"


@dataclass(frozen=True)
class Document:
    """A text and where it stands: `file`, `file:line` or `file row N`."""

    text: str
    where: str
    fields: tuple[Any, ...] = ()
    """Values of the further fields of its record that were asked for."""


@dataclass(frozen=True)
class Field:
    """A field of a record beside its text."""

    name: str
    option: str
    """The recipe's key that names it."""
    value: Callable[[object], Any]
    """What is taken of it; raises `ValueError` that says what is wrong with it."""

    def read(self, raw: object) -> Any:
        """What is taken of the field; raises `ValueError` that names it."""
        try:
            return self.value(raw)
        except ValueError as error:
            raise ValueError(f"field {self.name!r} {error} ({self.option} names it)") from error


Fields = Sequence[Field]
"""What is read beside the text."""


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
            raise DataError(f"{where}: {why}; mend it{SKIPPING}")
        self.bad_lines += 1
        if len(self.bad_examples) < KEPT_EXAMPLES:
            self.bad_examples.append(f"{where}: {why}")


def did_you_mean(wanted: str, present: Iterable[str]) -> str:
    """What to say behind `there is no 'wanted'`: the nearest name that is there, and the names."""
    names = sorted(present)
    near = difflib.get_close_matches(wanted, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}there are: {', '.join(names[:20]) or 'none'}"
