"""One measurement: what a training of few updates at one width has shown, or a row that somebody recorded.

The first updates of each training are left out of all numbers but `first_step_s`: they start threads and
connections, and on a compiler's machine they compile. Rates are those of the median update, so that one that
the system disturbed does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from kitae.train.pace import slow_ranks


@dataclass(frozen=True)
class Waits:
    """Share of an update that ranks wait for collectives: for bytes to travel, and for ranks that are late.

    What is hidden behind computing is not in it.
    """

    mean: float
    """Of all ranks."""
    worst: float
    """Of the rank that waits longest."""


@dataclass(frozen=True)
class SlowRank:
    """A rank that others wait for."""

    rank: int
    node: str
    ratio: float
    """Its median computing time by that of the others."""


@dataclass(frozen=True)
class Measured:
    """A width, once."""

    width: int
    round: str
    """Measurements of one round ran close to each other, and are compared with each other."""
    rate: float
    """Tokens (padding counted) or sequences a second, of all workers."""
    real_rate: float | None = None
    """Without padding."""
    step_s: float | None = None
    """Median seconds of an update."""
    first_step_s: float | None = None
    """Of the first one, which warms up and may compile."""
    waits: Waits | None = None
    """None where the host does not see them."""
    losses: tuple[float, ...] = ()
    """Of every update, warm-up too: means over what the whole global batch predicts."""
    grad_norms: tuple[float, ...] = ()
    """The same of the norms of all gradients."""
    slow: tuple[SlowRank, ...] = ()
    oversubscribed: bool = False
    """Whether threads outnumbered cores."""
    about: Mapping[str, Any] | None = None
    """What its training was: batches, backend, precision, nodes."""


def measured_of(facts: Mapping[str, Any]) -> Measured:
    """Of the facts that a training left (`scale/rank.py`)."""
    skipped, steps = facts["warm_up"], facts["steps"]
    steady = steps[skipped:]
    step_s = median(one["seconds"] for one in steady)
    ranks = [_Rank.of(one, skipped) for one in facts["ranks"]]
    return Measured(
        width=facts["width"],
        round=str(facts["round"]),
        rate=mean(one["padded_tokens"] for one in steady) / step_s,
        real_rate=mean(one["real_tokens"] for one in steady) / step_s,
        step_s=step_s,
        first_step_s=steps[0]["seconds"],
        waits=_waits(ranks) if facts["waits_are_seen"] else None,
        losses=tuple(one["loss"] for one in steps),
        grad_norms=tuple(one["grad_norm"] for one in steps),
        slow=_slow(ranks),
        oversubscribed=facts["backend"] == "cpu" and _oversubscribed(facts["ranks"]),
        about={
            **{name: facts.get(name) for name in ABOUT},
            "hosts": len({one["host"] for one in facts["ranks"]}),
        },
    )


ABOUT = (
    *("processes", "copies", "global_batch_size", "micro_batch_size", "accumulation_steps"),
    *("backend", "precision", "instance", "hosts"),
)
"""Facts that are kept with the numbers."""


@dataclass(frozen=True)
class _Rank:
    number: int
    node: str
    seconds: Sequence[float]
    waited_s: Sequence[float]

    @classmethod
    def of(cls, facts: Mapping[str, Any], skipped: int) -> _Rank:
        return cls(facts["rank"], facts["node"], facts["seconds"][skipped:], facts["waited_s"][skipped:])

    @property
    def computed_s(self) -> list[float]:
        return [one - waited for one, waited in zip(self.seconds, self.waited_s, strict=True)]


def _waits(ranks: Sequence[_Rank]) -> Waits:
    shares = [sum(one.waited_s) / sum(one.seconds) for one in ranks]
    return Waits(mean(shares), max(shares))


def _slow(ranks: Sequence[_Rank]) -> tuple[SlowRank, ...]:
    """By the rule that a training tells them by, `train/pace.py`; one rank alone is never slow."""
    if len(ranks) == 1:
        return ()
    by_step = list(zip(*(one.computed_s for one in ranks), strict=True))
    return tuple(SlowRank(one.rank, ranks[one.rank].node, one.ratio) for one in slow_ranks(by_step))


def _oversubscribed(ranks: Sequence[Mapping[str, Any]]) -> bool:
    """Whether some host has more threads than cores; what is called several nodes may be one host."""
    threads: defaultdict[str, int] = defaultdict(int)
    cores: dict[str, int] = {}
    for one in ranks:
        threads[one["host"]] += one["threads"]
        cores[one["host"]] = max(cores.get(one["host"], 0), one["cores"])
    return any(count > cores[host] for host, count in threads.items())
