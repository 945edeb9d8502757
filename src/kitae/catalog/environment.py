"""The dated table of variables by stack."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from functools import cache

from kitae.catalog.reading import read_table

STACKS = ("trn1-xla", "torchneuron", "cuda", "xla-cpu", "cpu")
"""What computes: torch-xla on Trainium, TorchNeuron, CUDA, torch-xla on a processor, a processor."""
CONDITIONS = ("interface", "efa", "several")
"""What a row may need beside a precision."""


@dataclass(frozen=True)
class Row:
    """A variable, where it holds, and why."""

    name: str
    stacks: tuple[str, ...]
    why: str
    source: str
    value: str = ""
    """With places for the first machine's address, the interface and the host; of a refused one: what must
    not be, empty for anything true."""
    needs: tuple[str, ...] = ()
    """Conditions that must hold, and precisions, of which one must."""

    def holds(self, stack: str, conditions: set[str], precision: str) -> bool:
        """Whether it is for this stack, under these conditions, with this precision."""
        precisions = [need for need in self.needs if need not in CONDITIONS]
        met = all(need in conditions for need in self.needs if need in CONDITIONS)
        return stack in self.stacks and met and (not precisions or precision in precisions)


@cache
def variables() -> tuple[Row, ...]:
    """What is set, in the order of the file."""
    return _rows("variables")


@cache
def refused() -> tuple[Row, ...]:
    """What must not be set."""
    return _rows("refused")


def written() -> datetime.date:
    """When the sources were read."""
    date: datetime.date = read_table("environment")["date"]
    return date


def _rows(name: str) -> tuple[Row, ...]:
    entries = read_table("environment")[name]
    return tuple(
        Row(**{**entry, "stacks": tuple(entry["stacks"]), "needs": tuple(entry.get("needs", ()))})
        for entry in entries
    )
