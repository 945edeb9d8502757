"""`kitae cluster down`: nothing of a cluster is left that bills, or it says what is.

What is made of a cluster is known from the account, by names and tags; this may run on any machine. The
switch goes last, when nothing else is left: where this fails, AWS goes on by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kitae.cluster.aws import Account
from kitae.cluster.bucket import bucket_exists, remove_bucket
from kitae.cluster.engine_calls import Clusters, first_failure
from kitae.cluster.leftovers import Leftover, scan, total
from kitae.cluster.money import dollars
from kitae.cluster.names import Names
from kitae.cluster.stacks import delete_stack
from kitae.errors import ClusterError

Say = Callable[[str], None]
PAUSE_S = 15.0
PATIENCE_S = 3600.0
DELETES = 3
"""So often a delete that failed is begun again."""
PASSES = 40
"""So often what is left is looked for, and taken away; machines and gateways take minutes to go."""


@dataclass(frozen=True)
class Ending:
    """A cluster that is to go."""

    account: Account
    clusters: Clusters
    name: str
    say: Say
    kept: frozenset[str] = frozenset()
    """Kinds of things that stay because the cluster file says so."""
    prices: Mapping[str, float] = field(default_factory=dict)

    @property
    def names(self) -> Names:
        """What is called how."""
        return Names(self.name)


def down(ending: Ending) -> list[Leftover]:
    """Take everything away; what was to be kept. Raises `ClusterError` that lists what does not go."""
    failures = [
        text for step in (_delete_cluster, _delete_network, _delete_bucket) for text in _tried(step, ending)
    ]
    left = _remaining(ending)
    for number in range(PASSES):
        if not left:
            break
        if number:
            time.sleep(PAUSE_S)
        _remove(ending, left)
        left = _remaining(ending)
    if left:
        raise ClusterError(_listing(ending, left, failures))
    delete_stack(ending.account, ending.names.switch_stack, ending.say)
    # A schedule may be there without its stack.
    _remove(ending, [one for one in _all(ending) if one.kind.name not in ending.kept])
    found = _all(ending)
    still = [one for one in found if one.kind.name not in ending.kept]
    if still:
        raise ClusterError(_listing(ending, still, failures))
    return found


def _tried(step: Callable[[Ending], None], ending: Ending) -> list[str]:
    """What a step failed with; the next is tried all the same, so that little goes on billing."""
    try:
        step(ending)
    except ClusterError as error:
        ending.say(f"{error}")
        return [str(error)]
    return []


def _delete_cluster(ending: Ending) -> None:
    for attempt in range(1, DELETES + 1):
        found = ending.clusters.find(ending.name)
        if found is None:
            return
        if found.status != "DELETE_IN_PROGRESS":
            again = "" if attempt == 1 else f" again, attempt {attempt} of {DELETES}"
            ending.say(f"{ending.name}: is deleted{again}")
            ending.clusters.delete(ending.name)
        if _gone(ending):
            return
    events = ending.clusters.events(ending.name)
    raise ClusterError(f"{ending.name} does not go: {first_failure(events) or 'no reason is given'}")


def _gone(ending: Ending) -> bool:
    """Wait until the cluster is gone; False when its deletion failed."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = ending.clusters.look(ending.name, lambda: time.sleep(PAUSE_S))
        if found is None:
            return True
        if not found.in_progress:
            return False
        if time.monotonic() > end:
            raise ClusterError(f"{ending.name} has been {found.status} for {PATIENCE_S / 60:.0f} minutes")
        time.sleep(PAUSE_S)


def _delete_network(ending: Ending) -> None:
    delete_stack(ending.account, ending.names.network_stack, ending.say)


def _delete_bucket(ending: Ending) -> None:
    name = ending.names.bucket(ending.account.number, ending.account.region)
    if bucket_exists(ending.account, name):
        ending.say(f"{name}: is deleted")
        remove_bucket(ending.account, name)


def _remaining(ending: Ending) -> list[Leftover]:
    """What is left and must not be: the switch still may, and what the file keeps."""
    own = (ending.names.switch_stack,)
    return [one for one in _all(ending) if one.thing.id not in own and one.kind.name not in ending.kept]


def _all(ending: Ending) -> list[Leftover]:
    return scan(ending.account, ending.name, ending.prices)


def _remove(ending: Ending, left: list[Leftover]) -> None:
    for one in left:
        if one.thing.going:
            continue
        ending.say(f"left over: {one.line()}")
        try:
            one.kind.remove(ending.account, one.thing.id)
        except ClusterError as error:
            ending.say(f"{error}")


def _listing(ending: Ending, left: list[Leftover], failures: list[str]) -> str:
    lines = [f"  {one.line()}" for one in left]
    why = [f"  because: {text}" for text in failures]
    return "\n".join(
        [
            f"{len(left)} things of {ending.name} are left, which bill {dollars(total(left))} an hour where "
            "the price is known; the switch stays set, and tries again:",
            *lines,
            *why,
        ]
    )
