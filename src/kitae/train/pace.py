"""How long every rank computes in a step, and which ones the others wait for.

Time inside collectives is left out: with it all ranks of a step take equally long, however slow one is.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kitae.parallel.mesh import Mesh

SLOWER = 1.3
"""How many times as long as the others a rank has to compute to be called slow."""
NOTICED_S = 0.05
"""And by how much: in shorter steps a busy core makes such differences by chance."""
WINDOW, ENOUGH = 20, 10
"""In how many of how many steps."""
EVERY = 10
"""Steps after which ranks tell each other."""
NODE = "KITAE_NODE"
"""Environment variable with the name of a rank's machine."""

Record = dict[str, Any]


@dataclass(frozen=True)
class Slow:
    """A rank that others wait for."""

    rank: int
    ratio: float
    """Its median time by that of the others."""


def slow_ranks(seconds: Sequence[Sequence[float]]) -> list[Slow]:
    """The slow ranks of the last `WINDOW` steps, [steps][ranks], the slowest first."""
    last = seconds[-WINDOW:]
    found = []
    for rank in range(len(last[0]) if last else 0):
        own = [step[rank] for step in last]
        others = [median([*step[:rank], *step[rank + 1 :]] or [step[rank]]) for step in last]
        pairs = zip(own, others, strict=True)
        slower = sum(one > SLOWER * other and one - other > NOTICED_S for one, other in pairs)
        if slower >= ENOUGH:
            found.append(Slow(rank, median(own) / median(others)))
    return sorted(found, key=lambda one: -one.ratio)


@dataclass
class Pace:
    """Notes this rank's times, and lets the rank that leads tell of slow ones, each once."""

    mesh: Mesh
    report: Callable[[str], None]
    write: Callable[[Record], None]
    """Takes a record of the metrics."""
    _own: list[float] = field(default_factory=list)
    _all: deque[list[float]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _told: set[int] = field(default_factory=set)

    def note(self, step: int, seconds: float) -> None:
        """Take the time of a step; every so often all ranks exchange theirs, which they do together."""
        if self.mesh.control.size == 1:
            return
        self._own.append(seconds)
        if len(self._own) < EVERY:
            return
        answers = self.mesh.control.exchange((node_name(), self._own))
        self._own = []
        if self.mesh.leads:
            self._look(step, answers)

    def _look(self, step: int, answers: list[tuple[str, list[float]]]) -> None:
        names, times = zip(*answers, strict=True)
        self._all.extend(map(list, zip(*times, strict=True)))
        slow = slow_ranks(list(self._all))
        self.write(
            {
                "kind": "ranks",
                "step": step,
                "compute_seconds": [median(one) for one in times],
                "nodes": list(names),
                "slow": [{"rank": one.rank, "ratio": one.ratio} for one in slow],
            }
        )
        for one in slow:
            if one.rank not in self._told:
                self._told.add(one.rank)
                self.report(
                    f"rank {one.rank} on {names[one.rank]} computes {one.ratio:.2f} x as long as the others, "
                    "which wait for it: look at what else runs there, or take the machine out"
                )


def node_name() -> str:
    """What this machine is called in its job."""
    return os.environ.get(NODE) or socket.gethostname()
