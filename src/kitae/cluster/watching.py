"""Machines of queues as the account sees them: which run, which boots failed, what AWS refused, the cost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal

from kitae.cluster.aws import Account
from kitae.cluster.engine_calls import Clusters
from kitae.cluster.fleet import FleetWatch, machines_of
from kitae.cluster.guard import limits_of, verdicts
from kitae.cluster.guard_program import Limits, Tally, Verdict
from kitae.cluster.logs import lines, streams_of
from kitae.cluster.money import dollars
from kitae.cluster.names import Names
from kitae.cluster.schema import ClusterFile
from kitae.cluster.troubles import words_for
from kitae.errors import ClusterError

PAUSE_S = 30.0
BACK = timedelta(hours=6)
"""So far back logs are read."""
_LOGS = ("clustermgtd", "slurm_resume")
_ALIVE = ("pending", "running")


@dataclass(frozen=True)
class QueueNews:
    """What there is to tell of a queue."""

    name: str
    states: Mapping[str, int]
    """Machines by state."""
    machine_s: float
    """Seconds of those that run, since each was started, added up."""
    failed: int
    """Boots that failed since the last that did not."""
    failed_s: float
    """Seconds of machines whose boots failed."""
    why: str
    refused: str

    def line(self, limits: Limits) -> str:
        """As it is printed."""
        return "; ".join(self._parts(limits))

    def _parts(self, limits: Limits) -> Iterator[str]:
        usd = limits.usd.get(self.name)
        cost = "" if usd is None else f", {dollars(_cost(self.machine_s, usd))} since they started"
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        yield f"queue {self.name}: {states + cost if states else 'no machine'}"
        if self.failed:
            why = f" ({self.why})" if self.why else ""
            cost = limits.cost(self.name, self.failed_s)
            yield f"{self.failed} boots failed{why}, {cost}; {limits.boot_failures} end it"
        if self.refused:
            yield words_for(self.refused) or self.refused


def news(account: Account, name: str, now: datetime) -> list[QueueNews]:
    """Look at the machines of a cluster's queues. Raises `ClusterError`."""
    tally = tally_of(account, name, now - BACK)
    machines = machines_of(account, name)
    queues = sorted({*machines, *tally.failed, *tally.refused})
    return [_news(queue, machines.get(queue, {}), tally, now) for queue in queues]


def tally_of(account: Account, name: str, since: datetime) -> Tally:
    """What the head node's logs tell of machines that did not come."""
    streams = [one for one in streams_of(account, name) if one.log in _LOGS]
    return Tally().read_all(one.text for one in lines(account, streams, since))


def _news(queue: str, machines: Mapping[str, tuple[str, datetime]], tally: Tally, now: datetime) -> QueueNews:
    alive = [since for state, since in machines.values() if state in _ALIVE]
    return QueueNews(
        queue,
        Counter(state for state, _ in machines.values() if state in _ALIVE),
        sum((now - since).total_seconds() for since in alive),
        tally.failed.get(queue, 0),
        tally.machine_s.get(queue, 0.0),
        tally.why.get(queue, ""),
        tally.refused.get(queue, ""),
    )


def _cost(machine_s: float, usd: str) -> Decimal:
    return Decimal(str(machine_s)) / 3600 * Decimal(usd)


def limits_or_default(file: ClusterFile | None) -> Limits:
    """What a cluster allows machines that do not come; where nothing says so, what is allowed by default."""
    return Limits(5, 1200.0, {}) if file is None else limits_of(file)


def guard_told(account: Account, name: str) -> list[Verdict]:
    """What the head node's guard ended."""
    return verdicts(account, Names(name).bucket(account.number, account.region))


def watch_lines(account: Account, name: str, file: ClusterFile | None, now: datetime) -> Iterator[str]:
    """Queues, and what was ended in them, as it is printed."""
    limits = limits_or_default(file)
    for one in news(account, name, now):
        yield one.line(limits)
    for verdict in guard_told(account, name):
        yield f"ended by the head node at {verdict.time}: queue {verdict.queue}: {verdict.text}"


@dataclass(frozen=True)
class Vigil:
    """A cluster that is watched until somebody stops that."""

    account: Account
    clusters: Clusters
    name: str
    file: ClusterFile | None
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic


def keep_watch(vigil: Vigil, go_on: Callable[[], bool] = lambda: True) -> None:
    """Tell what changes; stop the fleet where boots fail again and again, or machines wait for others.

    Raises `ClusterError` with the cost so far once it was stopped.
    """
    limits, told = limits_or_default(vigil.file), list[str]()
    always_on = None
    if vigil.file is not None:
        always_on = FleetWatch(vigil.account, vigil.clusters, vigil.file, vigil.clock)
    while go_on():
        now = datetime.now(timezone.utc)
        found = news(vigil.account, vigil.name, now)
        said = [one.line(limits) for one in found]
        for line in said:
            if line not in told:
                vigil.say(line)
        told = said
        _end_loops(vigil, found, limits)
        if always_on is not None:
            always_on.look(any_yet=False)
        time.sleep(PAUSE_S)


def _end_loops(vigil: Vigil, found: list[QueueNews], limits: Limits) -> None:
    looping = next((one for one in found if one.failed >= limits.boot_failures), None)
    if looping is None:
        return
    vigil.clusters.fleet(vigil.name, start=False)
    raise ClusterError(
        f"{looping.line(limits)}; all machines of {vigil.name} are stopped now. kitae cluster logs has what "
        "the nodes wrote; then kitae cluster start, or kitae cluster down"
    )
