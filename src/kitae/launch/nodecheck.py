"""Whether machines are fit for a training: what is measured on each, and which of them is broken or slow.

Every rank multiplies matrices, fills memory, writes to disks and reads the clock; one rank of each machine
sends to others, each time all at once with another distance; all sum together. Values are compared exactly:
small whole numbers have exact products and sums in fp32, whatever the order.
A machine is slow when it takes 1.3 times as long as the median of the others. As one that is disturbed for a
moment is not, it is only called so after it was slow every time it was tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from kitae.launch.failure import NodeLostError

SLOWER = 1.3
"""Times as long as the others."""
LEAST_S = 0.002
"""A smaller difference in the exchange of data is that of a moment."""
TRIES = 5
"""How often machines are tried while one of them is slow."""
CLOCK_S = 1.0
"""How far a clock may be off: what happened first is told by clocks."""
LEAST_FREE_BYTES = 1 << 30
"""Of the temporary folder."""
LESS_MEMORY = 0.8
"""Share of the others' memory that a machine has to have."""


class NodeFaultError(NodeLostError):
    """A machine is broken or slow."""

    def __init__(self, node: str, reason: str, *, slow: bool = False) -> None:
        way_out = "; target.node_check: false trains with it all the same" if slow else ""
        super().__init__(f"node {node} is not fit for a training: {reason}{way_out}", node, reason)
        self.slow = slow
        """Whether it works, but slowly."""


@dataclass(frozen=True)
class Report:
    """What a rank has measured."""

    node: int
    matmul_s: float
    """Best time of a product."""
    wrong: str = ""
    """What came out wrong; empty for nothing."""
    clock_s: float = 0.0
    """How far its clock is before the first rank's."""
    memory_bytes: int = 0
    """Of its machine."""
    free_bytes: int = LEAST_FREE_BYTES
    """Of its temporary folder."""
    received_s: dict[int, float] | None = None
    """Best time to receive from other machines, by number; of one rank of each."""


Round = Sequence[Report]
"""Of all ranks, in order."""


@dataclass(frozen=True)
class Finding:
    """A machine and what is wrong with it."""

    node: int
    reason: str
    slow: bool = False


def findings(rounds: Sequence[Round]) -> list[Finding]:
    """What is wrong, the worst first; a machine is slow when it was so in all rounds, if there are enough."""
    broken = [found for one in rounds[:1] for found in _broken(one)]
    broken += [found for one in rounds[1:] for found in _wrong(one)]
    if broken or len(rounds) < TRIES:
        return broken
    always = set.intersection(*({found.node for found in slow(one)} for one in rounds))
    return [found for found in slow(rounds[-1]) if found.node in always]


def slow(reports: Round) -> list[Finding]:
    """Machines that are slow in one round."""
    return [
        *_slow(_matmul_times(reports), "computes"),
        *_slow(_link_times(reports), "exchanges data", LEAST_S),
    ]


def _slow(times: dict[int, float], what: str, least_s: float = 0.0) -> Iterator[Finding]:
    for node, seconds in times.items():
        others = [time for other, time in times.items() if other != node]
        usual = median(others) if others else seconds
        if seconds > SLOWER * usual and seconds > usual + least_s:
            yield Finding(node, f"it {what} {seconds / usual:.1f} x as slowly as the others", slow=True)


def _matmul_times(reports: Round) -> dict[int, float]:
    """Of the slowest rank of each machine."""
    nodes = sorted({report.node for report in reports})
    return {node: max(one.matmul_s for one in reports if one.node == node) for node in nodes}


def _link_times(reports: Round) -> dict[int, float]:
    """The best that each can do, to or from any other; nothing of two, which share their only link."""
    links = [
        (report.node, other, seconds)
        for report in reports
        for other, seconds in (report.received_s or {}).items()
    ]
    nodes = sorted({node for *both, _ in links for node in both})
    if len(nodes) < 3:
        return {}
    return {node: min(seconds for *both, seconds in links if node in both) for node in nodes}


def _broken(reports: Round) -> Iterator[Finding]:
    for look in (_wrong, _clocks, _disks, _memories):
        yield from look(reports)


def _wrong(reports: Round) -> Iterator[Finding]:
    return (Finding(report.node, report.wrong) for report in reports if report.wrong)


def _clocks(reports: Round) -> Iterator[Finding]:
    return _alone(
        reports,
        lambda report: abs(report.clock_s) > CLOCK_S,
        lambda report: f"its clock is {report.clock_s:+.1f} s off that of the first node; does chrony run?",
    )


def _disks(reports: Round) -> Iterator[Finding]:
    return _alone(
        reports,
        lambda report: report.free_bytes < LEAST_FREE_BYTES,
        lambda report: f"its temporary folder has {report.free_bytes / 1e9:.1f} GB free",
    )


def _memories(reports: Round) -> Iterator[Finding]:
    usual = median(report.memory_bytes for report in reports)
    return _alone(
        reports,
        lambda report: report.memory_bytes < LESS_MEMORY * usual,
        lambda report: (
            f"it has {report.memory_bytes / 1e9:.1f} GB of memory, the others {usual / 1e9:.1f} GB"
        ),
    )


def _alone(
    reports: Round, bad: Callable[[Report], bool], reason: Callable[[Report], str]
) -> Iterator[Finding]:
    """One finding for each machine that is bad; the first rank of it tells."""
    told: set[int] = set()
    for report in reports:
        if bad(report) and report.node not in told:
            told.add(report.node)
            yield Finding(report.node, reason(report))
