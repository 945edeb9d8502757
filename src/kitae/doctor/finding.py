"""What a check finds, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kitae.data.word_tokenizer import WordTokenizer, load_tokenizer

if TYPE_CHECKING:
    from kitae.doctor.target import Target

Level = Literal["ok", "note", "fail"]
"""Fit, worth knowing, or in the way."""


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    level: Level
    subject: str
    """What was looked at."""
    text: str
    """What was found and, unless it is fit, the way out."""
    source: str = ""
    """Where it is known from, of what is not seen here."""


@dataclass(frozen=True)
class Patient:
    """What is looked at beside the machine."""

    cache: Path
    """Folder of kitae's cache."""
    tokenizer: Path | None = None
    """Folder of the tokenizer; None where only the machine is looked at."""
    dictionary: str | None = None
    """The MeCab dictionary that the recipe names."""
    embedding_rows: int | None = None
    """Of the model, where one is known."""
    texts: Callable[[], list[str]] | None = None
    """The beginning of the recipe's own text; None where there is no recipe."""
    out_of_reach: str = ""
    """Why the recipe's tokenizer and model cannot be looked at; empty where they can."""
    target: Target | None = None
    """The machine type that is meant; None where nothing is asked of it."""
    ranks: int | None = None
    """Processes that the recipe has on each machine, where both are known."""
    runs: Path = Path("runs")
    """Folder of the runs."""

    @cached_property
    def loaded(self) -> WordTokenizer | None:
        """The tokenizer; None where only the machine is looked at. Raises `DataError`."""
        return None if self.tokenizer is None else load_tokenizer(self.tokenizer, self.dictionary)


Check = Callable[[Patient], Iterator[Finding]]
"""Looks at one thing; may raise `KitaeError`, which becomes a finding."""
