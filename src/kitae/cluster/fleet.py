"""Machines that are always on, watched while they come: some never do, some fail to boot again and again.

Both bill while nothing trains, so both have an end: the fleet is stopped, and what the waiting cost is
told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from kitae.cluster.aws import Account
from kitae.cluster.engine_calls import Clusters
from kitae.cluster.moments import seconds_of
from kitae.cluster.money import dollars, price
from kitae.cluster.names import ENGINE_TAG
from kitae.cluster.schema import ClusterFile
from kitae.errors import ClusterError

PAUSE_S = 15.0
_QUEUE_TAG = "parallelcluster:queue-name"
_ALIVE = ("pending", "running")
_STARTED = "running"


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
        if sum(state == _STARTED for state in states.values()) >= self.wanted:
            return "there"
        lost = len(self.seen - self.alive)
        if lost >= self.boot_failures:
            return f"{lost} machines started and went away again"
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


def await_fleet(
    account: Account,
    clusters: Clusters,
    file: ClusterFile,
    say: Callable[[str], None],
    clock: Callable[[], float],
) -> None:
    """Wait for machines that are always on. Stops the fleet and raises `ClusterError` where some stay out."""
    limits = file.limits
    patience = seconds_of(limits.capacity_wait)
    queues = {queue.name: queue for queue in file.queues if queue.min > 0}
    watches = {name: Watch(queue.min, limits.boot_failures, patience) for name, queue in queues.items()}
    begun = clock()
    while watches:
        states = _states(account, file.name)
        for name, watch in list(watches.items()):
            verdict = watch.see(clock() - begun, states.get(name, {}))
            if verdict == "there":
                say(f"queue {name}: all {watch.wanted} machines are there")
                del watches[name]
            elif verdict != "waiting":
                clusters.fleet(file.name, start=False)
                raise ClusterError(_stopped(file, name, queues[name].instance, verdict, watch))
        if watches:
            time.sleep(PAUSE_S)


def cost_of_wait(machine_s: float, usd_an_hour: Decimal) -> Decimal:
    """What machines cost for seconds that are added up over them."""
    return Decimal(str(machine_s)) / 3600 * usd_an_hour


def _stopped(file: ClusterFile, name: str, instance: str, verdict: str, watch: Watch) -> str:
    usd = price(file, instance)
    cost = (
        "at an unknown price" if usd is None else f"which cost {dollars(cost_of_wait(watch.machine_s, usd))}"
    )
    return (
        f"queue {name}: {verdict}, {cost}; its machines are stopped now. Look at the head node's "
        "/var/log/parallelcluster/clustermgtd and at a node's /var/log/kitae-bootstrap.log; then kitae "
        "cluster start, another zone, a reservation, or kitae cluster down"
    )


def _states(account: Account, cluster: str) -> dict[str, dict[str, str]]:
    """States of all machines by queue and id."""
    mine = [{"Name": f"tag:{ENGINE_TAG}", "Values": [cluster]}]
    found: dict[str, dict[str, str]] = {}
    for group in account.pages("ec2", "describe_instances", "Reservations", Filters=mine):
        for one in group["Instances"]:
            tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())}
            if _QUEUE_TAG in tags:
                found.setdefault(tags[_QUEUE_TAG], {})[one["InstanceId"]] = one["State"]["Name"]
    return found
