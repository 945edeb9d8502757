"""What a training reads: numbered rows of one static shape, whatever they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

Rows_co = TypeVar("Rows_co", covariant=True)


class Sample(NamedTuple):
    """A row, and which time it is read: what is drawn for a row, such as its masks, depends on both."""

    number: int
    epoch: int = 0


class Examples(Protocol[Rows_co]):
    """Rows by number. The same samples give the same arrays, on any rank."""

    @property
    def sequence_length(self) -> int:
        """Positions in a row."""
        ...

    def __len__(self) -> int:
        """Rows."""
        ...

    def read(self, samples: Sequence[Sample]) -> Rows_co:
        """The rows of these samples as arrays, in this order; IndexError for a number that is not there."""
        ...
