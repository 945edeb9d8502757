"""Machines that are always on, watched while they come: some never do, some fail to boot again and again.

Both bill while nothing trains, so both have an end: the fleet is stopped, and what the waiting cost is
told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from kitae.cluster.aws import Account
from kitae.cluster.engine_calls import Clusters
from kitae.cluster.moments import seconds_of
from kitae.cluster.money import dollars, price
from kitae.cluster.names import ENGINE_TAG
from kitae.cluster.reasons import node_error
from kitae.cluster.schema import ClusterFile
from kitae.errors import ClusterError

PAUSE_S = 15.0
_QUEUE_TAG = "parallelcluster:queue-name"
_ALIVE = ("pending", "running")
_STARTED = "running"
Clock = Callable[[], float]
"""Seconds."""


@dataclass
class Watch:
    """What was seen of one queue's machines so far."""

    wanted: int
    boot_failures: int
    """So many machines that went away again end the wait."""
    patience_s: float
    """So long machines that came wait for the others."""
    seen: set[str] = field(default_factory=set)
    alive: set[str] = field(default_factory=set)
    machine_s: float = 0.0
    """Seconds of machines that were paid for, added up."""
    _last_s: float = 0.0
    _since_s: float | None = None
    _some: bool = False

    def see(self, now_s: float, states: Mapping[str, str]) -> str:
        """Take in what is there `now_s`, by id; `there`, `waiting`, or why the wait is over."""
        self.machine_s += len(self.alive) * (now_s - self._last_s)
        self._last_s = now_s
        self.alive = {one for one, state in states.items() if state in _ALIVE}
        self.seen |= self.alive
        lost = len(self.seen - self.alive)
        if lost >= self.boot_failures:
            return f"{lost} machines started and went away again"
        if sum(state == _STARTED for state in states.values()) >= self.wanted:
            return "there"
        return self._patience(now_s)

    def _patience(self, now_s: float) -> str:
        # Counted anew when the first machine comes and when the last one goes.
        if self._since_s is None or bool(self.alive) != self._some:
            self._since_s, self._some = now_s, bool(self.alive)
        waited = now_s - self._since_s
        if waited < self.patience_s:
            return "waiting"
        if not self.alive:
            return f"no machine came for {waited / 60:.0f} minutes"
        came = f"{len(self.alive)} of {self.wanted} machines came"
        return f"{came}, and waited {waited / 60:.0f} minutes for the others"


class FleetWatch:
    """Machines of all queues that are always on."""

    def __init__(self, account: Account, clusters: Clusters, file: ClusterFile, clock: Clock) -> None:
        self._account, self._clusters, self._file, self._clock = account, clusters, file, clock
        self._queues = {queue.name: queue for queue in file.queues if queue.min > 0}
        patience = seconds_of(file.limits.capacity_wait)
        self._watches = {
            name: Watch(queue.min, file.limits.boot_failures, patience)
            for name, queue in self._queues.items()
        }
        self._begun = clock()

    def look(self, *, any_yet: bool = True) -> list[str]:
        """Queues that are whole. Stops the fleet and raises `ClusterError` where some machines stay out.

        `any_yet`: whether a queue of which nothing came yet is waited for already.
        """
        if not self._watches:
            return []
        states, whole = _states(self._account, self._file.name), []
        for name, watch in self._watches.items():
            if not (any_yet or watch.seen or states.get(name)):
                continue
            verdict = watch.see(self._clock() - self._begun, states.get(name, {}))
            if verdict == "there":
                whole.append(name)
            elif verdict != "waiting":
                raise ClusterError(self._stopped(name, verdict, watch))
        return whole

    def done(self, name: str) -> int:
        """Watch a queue no more; how many machines it has."""
        return self._watches.pop(name).wanted

    @property
    def waits(self) -> bool:
        """Whether some queue is watched."""
        return bool(self._watches)

    def _stopped(self, name: str, verdict: str, watch: Watch) -> str:
        usd = price(self._file, self._queues[name].instance)
        cost = "at an unknown price"
        if usd is not None:
            cost = f"which cost {dollars(cost_of_wait(watch.machine_s, usd))}"
        try:
            self._clusters.fleet(self._file.name, start=False)
            now = "its machines are stopped now"
        except ClusterError as error:
            now = f"its machines could not be stopped, and bill on ({error}): kitae cluster down ends them"
        return (
            f"queue {name}: {verdict}, {cost}; {now}. {self._nodes_say()}Then kitae cluster start, another "
            "zone, a reservation, or kitae cluster down"
        )

    def _nodes_say(self) -> str:
        try:
            said = node_error(self._account, self._file.name)
        except ClusterError:
            said = None
        if said is None:
            return "kitae cluster logs has what the nodes wrote. "
        return f"The nodes say: {said}. "


def await_fleet(
    account: Account,
    clusters: Clusters,
    file: ClusterFile,
    say: Callable[[str], None],
    clock: Clock,
) -> None:
    """Wait for machines that are always on. Stops the fleet and raises `ClusterError` where some stay out."""
    watch = FleetWatch(account, clusters, file, clock)
    while watch.waits:
        for name in watch.look():
            say(f"queue {name}: all {watch.done(name)} machines are there")
        if watch.waits:
            time.sleep(PAUSE_S)


def cost_of_wait(machine_s: float, usd_an_hour: Decimal) -> Decimal:
    """What machines cost for seconds that are added up over them."""
    return Decimal(str(machine_s)) / 3600 * usd_an_hour


def machines_of(account: Account, cluster: str) -> dict[str, dict[str, tuple[str, datetime]]]:
    """All machines of a cluster by queue and id: state, and since when."""
    mine = [{"Name": f"tag:{ENGINE_TAG}", "Values": [cluster]}]
    found: dict[str, dict[str, tuple[str, datetime]]] = {}
    for group in account.pages("ec2", "describe_instances", "Reservations", Filters=mine):
        for one in group["Instances"]:
            tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())}
            if _QUEUE_TAG in tags:
                of_queue = found.setdefault(tags[_QUEUE_TAG], {})
                of_queue[one["InstanceId"]] = (one["State"]["Name"], one["LaunchTime"])
    return found


def _states(account: Account, cluster: str) -> dict[str, dict[str, str]]:
    return {
        queue: {one: state for one, (state, _) in machines.items()}
        for queue, machines in machines_of(account, cluster).items()
    }
