"""How an update is shared out at each width: accumulation divides exactly, or the width is refused.

Scripts that divide accumulation by the number of workers and round have trained with no micro-batch at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Literal

from kitae.errors import RecipeError

Kind = Literal["strong", "weak"]
MOST_NAMED = 12
"""Widths that fit are named up to so many."""


@dataclass(frozen=True)
class Share:
    """An update at one width."""

    width: int
    """Workers or nodes."""
    copies: int
    """Of the model."""
    rows: int
    """Of the update, all copies together."""
    micro: int
    """Rows of a micro-batch."""

    @property
    def accumulation(self) -> int:
        """Micro-batches of a copy in an update; at least 1."""
        return self.rows // (self.copies * self.micro)


@dataclass(frozen=True)
class Sharing:
    """What widths are shared out by."""

    kind: Kind
    unit: str
    """What a width counts: workers or nodes."""
    processes: int
    """Of one worker (1) or node."""
    tensor_parallel: int
    """Processes of a copy."""
    rows: int
    """Of an update of `own_copies`."""
    own_copies: int | None
    """Copies that the recipe's batch is meant for; None: those of the smallest width."""
    micro: int | None
    """Rows of a micro-batch; None: the most that all widths can have."""
    micro_tokens: int
    """Most tokens of an automatic micro-batch."""
    length: int
    """Tokens of a row."""

    def of(self, widths: Sequence[int]) -> list[Share]:
        """An update at each width. Raises `RecipeError` for one that does not share it exactly."""
        problems = [(width, why) for width in widths if (why := self._problem(width, widths))]
        if problems:
            width, why = problems[0]
            raise RecipeError(f"--{self.unit} {width}: {why}; {self._way_out(widths)}")
        return [
            Share(width, self._copies(width), self._rows(width, widths), self._micro(widths))
            for width in widths
        ]

    def fits(self, width: int, widths: Sequence[int]) -> bool:
        """Whether a width shares the update exactly."""
        return self._problem(width, widths) is None

    def _problem(self, width: int, widths: Sequence[int]) -> str | None:
        copies, left = divmod(width * self.processes, self.tensor_parallel)
        if left or not copies:
            return (
                f"copies of the model take {self.tensor_parallel} processes each "
                f"(parallel.tensor_parallel_size), which {width * self.processes} cannot be made into"
            )
        each, left = divmod(self.rows, self._sharers(copies, widths))
        micro = self.micro or 1
        if left or each % micro:
            accumulation = self.rows / (self._sharers(copies, widths) * micro)
            in_micros = "" if self.micro is None else f" in micro-batches of {self.micro}"
            return (
                f"{self.rows} rows of an update cannot be shared out to {self._sharers(copies, widths)} "
                f"copies{in_micros}: accumulation would be {accumulation:.3g}, and is never rounded"
            )
        return None

    def _way_out(self, widths: Sequence[int]) -> str:
        fitting = [one for one in range(1, max(widths) + 1) if self.fits(one, widths)]
        named = ", ".join(map(str, fitting[-MOST_NAMED:])) or "none"
        field = "training.global_batch_size or training.micro_batch_size"
        return f"up to {max(widths)}, {named} fit; take those, or change {field}"

    def _sharers(self, copies: int, widths: Sequence[int]) -> int:
        """Copies that `rows` are shared out to: in weak scaling always the recipe's own."""
        return copies if self.kind == "strong" else self.own(widths)

    def own(self, widths: Sequence[int]) -> int:
        """Copies that the rows are meant for."""
        return self.own_copies or max(1, self._copies(min(widths)))

    def _copies(self, width: int) -> int:
        return width * self.processes // self.tensor_parallel

    def _rows(self, width: int, widths: Sequence[int]) -> int:
        if self.kind == "strong":
            return self.rows
        return self.rows // self.own(widths) * self._copies(width)

    def _micro(self, widths: Sequence[int]) -> int:
        """The same at each width, so that only the number of micro-batches differs."""
        if self.micro is not None:
            return self.micro
        each = gcd(*(self._rows(width, widths) // self._copies(width) for width in widths))
        most = max(1, self.micro_tokens // self.length)
        return next(size for size in range(min(each, most), 0, -1) if each % size == 0)
