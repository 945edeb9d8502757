"""What a change of a cluster file does to a cluster that stands, by ParallelCluster's own update policies.

Each key's change is looked at alone: what it alone would change of ParallelCluster's configuration, and
what the policies of the installed release say of that. What deletes data is a rule of kitae's:
ParallelCluster allows some of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kitae.cluster.diff import Change
from kitae.cluster.resolved import makes_network
from kitae.cluster.schema import ClusterFile

LIVE = "live"
REPLACES = "replaces nodes"
FLEET = "needs the fleet stopped"
DATA = "would delete data"
REFUSED = "cannot be done"
ORDER = (LIVE, REPLACES, FLEET, DATA, REFUSED)
"""From harmless to impossible."""
_DRAINED = "each node once its job ends; what lies on its own disks goes with it"
_BY_DRAINING = ("QUEUE_UPDATE_STRATEGY", "MANAGED_PLACEMENT_GROUP", "MANAGED_FSX")
_AGAIN = "what `save` names is saved by kitae cluster down; then kitae cluster up makes it so"
_HEAD = f"a head node stays as it was made, and /home lies on it: {_AGAIN}"
Row = Mapping[str, Any]

# By the beginnings of keys: the way out where ParallelCluster cannot.
_WAYS_OUT = {
    (
        "fsx",
    ): "a file system stays as it was made: save what is on it, give it up with fsx: null, then ask for "
    "another in a second update",
    (
        "bootstrap",
        "python",
    ): "its scripts ran when the head node was made: install by kitae cluster ssh, there, "
    "in /home/kitae/env-...",
    ("bootstrap",): "its scripts ran when the head node was made: run them there by kitae cluster ssh, or: "
    + _AGAIN,
    ("head",): _HEAD,
    ("image",): _HEAD,
    ("network",): f"its subnets hold machines: {_AGAIN}",
    ("zone",): f"its subnets are in the old one: {_AGAIN}",
    ("queues",): "the head node would need other software than it was made with: make another cluster for it",
}


@dataclass(frozen=True)
class Verdict:
    """A change, what it does, and why."""

    change: Change
    label: str
    why: str = ""

    def line(self) -> str:
        """As it is printed."""
        return f"{self.change.line()}  [{self.label}]" + (f" {self.why}" if self.why else "")


def verdict(change: Change, rows: Sequence[Row], old: ClusterFile, new: ClusterFile) -> Verdict:
    """What a change does; `rows` are what it alone changes of ParallelCluster's configuration."""
    found = [*(_of_row(row, change) for row in rows), *_own(change, old, new)]
    label, why = max(found, key=lambda one: ORDER.index(one[0]), default=(LIVE, _quiet(change, old)))
    return Verdict(change, label, why)


def storage_goes(change: Change, old: ClusterFile) -> bool:
    """Whether a change takes the file system away that holds data now."""
    return change.where == ("fsx",) and change.old is not None and change.new is None and old.fsx is not None


def _of_row(row: Row, change: Change) -> tuple[str, str]:
    if not row["allowed_stopped"]:
        if row["policy"] == "MANAGED_FSX":
            return DATA, "the file system lies in the old subnet: it is deleted, and another is made"
        return REFUSED, _way_out(change)
    if not row["allowed"]:
        return FLEET, "its jobs end"
    if row["policy"] in _BY_DRAINING:
        return REPLACES, _DRAINED
    return LIVE, ""


def _own(change: Change, old: ClusterFile, new: ClusterFile) -> list[tuple[str, str]]:
    """What ParallelCluster's policies do not know."""
    found: list[tuple[str, str]] = []
    fsx, where = old.fsx, change.where
    if storage_goes(change, old) and fsx is not None:
        found.append(
            (DATA, f"all that lies in {fsx.mount} is deleted")
            if fsx.at_down == "delete"
            else (LIVE, "the file system stays in the account, as at_down says, and bills on")
        )
    if where == ("fsx", "at_down") and change.new == "delete":
        found.append((DATA, "not now, but when the cluster ends, by whatever ends it"))
    if where[0] == "network" and where[1] in _GROUPS and fsx is not None:
        found.append(
            (DATA, "beside a file system of the cluster: other groups or subnets have replaced such")
        )
    fixed = where == ("zone",) or (where == ("network", "cidr") and makes_network(old))
    if fixed:
        found.append((REFUSED, _way_out(change)))
    return found


_GROUPS = ("security_groups", "private_subnet", "public_subnet")


def _quiet(change: Change, old: ClusterFile) -> str:
    """Of a change that ParallelCluster does not see."""
    if change.where[0] == "limits" and change.where[1] in ("until", "max_cost_usd"):
        return "the switch is set anew"
    if change.where == ("head", "allow_ssh_from") and not makes_network(old):
        return "without effect: the given security groups say who comes in"
    return ""


def _way_out(change: Change) -> str:
    where = tuple(str(one) for one in change.where)
    found = next((text for start, text in _WAYS_OUT.items() if where[: len(start)] == start), _AGAIN)
    return f"write the old value again, or: {found}"
