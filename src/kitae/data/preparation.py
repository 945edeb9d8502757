"""What every way to prepare data has in common: the job, what is counted, and how such a way is described."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kitae.data.documents import Tally
from kitae.data.examples import Examples
from kitae.data.sources import Sources
from kitae.data.workers import choose_workers
from kitae.recipe.sources import DataConfig

Advance = Callable[[int], None]
"""Told of each piece of a source that was read, in bytes on disk."""


class Vocabulary(Protocol):
    """What every tokenizer tells of itself, whatever else it can do."""

    @property
    def vocab_size(self) -> int:
        """Largest id plus one, added tokens included."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hash of all that the ids of a text depend on."""
        ...

    def token(self, token_id: int) -> str:
        """The token as the vocabulary spells it."""
        ...


@dataclass(frozen=True)
class Job:
    """All that a build needs."""

    config: DataConfig
    tokenizer: Any
    """What the objective's `load_tokenizer` gave: a `Vocabulary` at least."""
    embedding_rows: int
    seed: int
    sources: Sources
    workers: int

    @property
    def fraction(self) -> float | None:
        """Share of the training documents to hold out, if the recipe says so."""
        return None if self.config.heldout is None else self.config.heldout.fraction

    @property
    def num_bytes(self) -> int | None:
        """Bytes of the sources on disk, if known."""
        return self.sources.num_bytes


@dataclass(frozen=True)
class Largest:
    """The largest id of the text, and a document that holds it."""

    id: int = -1
    where: str = ""


@dataclass
class Intake:
    """What the sources of one split gave."""

    tallies: list[Tally]
    empty: int = 0


@dataclass
class Built:
    """What a build tells the data card."""

    intakes: dict[str, Intake]
    splits: dict[str, dict[str, Any]]
    """The counts of each split that has rows: `documents`, `rows` and what else there is to count."""
    largest: Largest
    duplicates: int
    """Training documents that a held-out source also holds."""
    tokenizer: dict[str, Any] = field(default_factory=dict)
    """What the card says of the tokenizer beside its size and fingerprint."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Further entries of the card."""
    warnings: list[str] = field(default_factory=list)


class Builder(Protocol):
    """Writes the splits of a job."""

    def build(self) -> Built:
        """Read, encode, split and write; raises `DataError`, and leaves no file open then."""
        ...

    def needed_bytes(self) -> int:
        """About how much the result takes in all, judged by the part that was written."""
        ...


def tokenising(config: DataConfig, sources: Sources) -> tuple[int, str]:
    """How many processes tokenise, and a line that says why."""
    workers, why = choose_workers(config.workers, sources.num_bytes)
    where = f"with {workers} worker processes" if workers else "in this process"
    return workers, f"tokenising {where} ({why})"


class Preparation(Protocol):
    """How text becomes the rows of one objective; an entry in the table `PREPARATIONS`."""

    def options(self, config: DataConfig, sources: Sources) -> dict[str, Any]:
        """What of the recipe the rows depend on; it stands in the card."""
        ...

    def key_parts(self, config: DataConfig, sources: Sources, seed: int) -> dict[str, Any]:
        """All that the rows depend on but the sources' contents and the tokenizer, as JSON values."""
        ...

    def work(self, config: DataConfig, sources: Sources) -> tuple[int, str]:
        """Worker processes to do it with, and a line that says so."""
        ...

    def load_tokenizer(self, folder: Path, config: DataConfig) -> Any:
        """The tokenizer of a folder, a `Vocabulary`; raises `DataError`."""
        ...

    def builder(self, job: Job, folder: Path, advance: Advance) -> Builder:
        """What writes the splits, each into a folder of its name below `folder`."""
        ...

    def open(self, folder: Path, embedding_rows: int) -> Examples[Any]:
        """A split, to be read for a model with so many embedding rows; raises `DataError`."""
        ...

    def summary(self, name: str, split: dict[str, Any], options: dict[str, Any]) -> str:
        """A split of the card in one line for people."""
        ...
