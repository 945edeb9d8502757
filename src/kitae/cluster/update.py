"""`kitae cluster update`: a cluster that stands becomes what its file says now.

What it is now is read from the account: the cluster file that kitae kept there, and the configuration that
ParallelCluster has. Every step looks whether it is done; a second `update`, from any machine, goes on.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import yaml

from kitae.cluster.carried import carried
from kitae.cluster.check import check, line_of, refuse_errors
from kitae.cluster.checking import refuse_by_schema
from kitae.cluster.config import Site, config_of
from kitae.cluster.diff import changes, with_change
from kitae.cluster.engine_calls import Cluster, Clusters
from kitae.cluster.extend import Move, ends_of, move_of
from kitae.cluster.kept import known
from kitae.cluster.load import LoadedCluster
from kitae.cluster.names import Names
from kitae.cluster.resolved import makes_network
from kitae.cluster.schema import ClusterFile
from kitae.cluster.stacks import find_stack
from kitae.cluster.up import Build
from kitae.cluster.verdicts import DATA, FLEET, ORDER, Verdict, verdict
from kitae.errors import ClusterError, RecipeError

_WHOLE = "whole"
_CHANGEABLE = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_FAILED")
_STOPPED = "STOPPED"
_GUARD = ("guard=", "watch=")


@dataclass(frozen=True)
class Update:
    """A change that was thought through, and not begun."""

    build: Build
    old: ClusterFile
    cluster: Cluster
    config: Mapping[str, Any]
    """ParallelCluster's configuration as it is to be."""
    site: Site
    verdicts: tuple[Verdict, ...]
    rows: tuple[Mapping[str, Any], ...]
    """What differs of ParallelCluster's configuration."""
    step: Move

    @property
    def new(self) -> ClusterFile:
        """The file as it is to be."""
        return self.build.file

    @property
    def label(self) -> str:
        """The worst of all."""
        return max((one.label for one in self.verdicts), key=ORDER.index, default=ORDER[0])

    @property
    def deletes(self) -> bool:
        """Whether data goes."""
        return any(one.label == DATA for one in self.verdicts)

    @property
    def stops(self) -> bool:
        """Whether the fleet has to be stopped, and is not."""
        return any(one.label == FLEET for one in self.verdicts) and self.cluster.fleet != _STOPPED

    @property
    def forced(self) -> bool:
        """Whether ParallelCluster's policies are against it even then: it would delete data."""
        return any(not row["allowed_stopped"] for row in self.rows)


def loaded_for(loaded: LoadedCluster, now: datetime, account_created: datetime | None) -> list[str]:
    """The rules on the new file; remarks. What it may cost is a matter of the switch here.

    A length of time counts from the first `up`. Raises `RecipeError`.
    """
    found = [one for one in check(loaded, account_created or now) if one.rule != "cost"]
    refuse_errors(loaded, found)
    remarks = [f"{one.level}: {line_of(loaded, one)}" for one in found if one.level == "warning"]
    return [*remarks, *refuse_by_schema(loaded.path, loaded.file, config_of(loaded.file, _NOWHERE))]


_NOWHERE = Site("subnet-00000000000000001", "subnet-00000000000000002", "kitae-not-asked")


def think(build: Build) -> Update:
    """What the change is, and does. Reads alone. Raises `ClusterError`, `RecipeError`."""
    name = build.file.name
    old = known(build.account, name)
    if old.zone != build.file.zone or old.region != build.file.region:
        where = f"{old.region}, {old.zone}"
        raise RecipeError(
            f"{build.path}: zone: {name} is in {where}; subnets and disks cannot move: write that again, or "
            "take it down and make it there"
        )
    cluster = standing(build.clusters, name)
    actual = config_there(cluster)
    site = _site(build, old, actual)
    base, target = _compared(old, site), _compared(build.file, site)
    whole = carried(actual, base, target)
    found = changes(old, build.file)
    alone = {one.key: _compared(with_change(old, one), site) for one in found}
    rows = _rows(build, name, actual, base, whole, alone)
    verdicts = tuple(verdict(one, rows[one.key], old, build.file) for one in found)
    step = move_of(build.account, build.file, build.file.limits.until, build.now)
    if old.limits.until == build.file.limits.until:
        step = replace(step, wanted=step.ends.wanted)
    return Update(build, old, cluster, whole, site, verdicts, tuple(rows[_WHOLE]), step)


def standing(clusters: Clusters, name: str) -> Cluster:
    """A cluster that can be changed. Raises `ClusterError`."""
    found = clusters.find(name)
    if found is None:
        raise ClusterError(f"no cluster {name} is in {clusters.region}; kitae cluster up makes it")
    if found.status not in _CHANGEABLE:
        raise ClusterError(
            f"{name} is {found.status} and cannot be changed so; kitae cluster status shows more, kitae "
            "cluster up goes on making it, kitae cluster down takes it away"
        )
    return found


def wait_for_running_change(clusters: Clusters, name: str, say: Any, pause_s: float) -> None:
    """A change that another process began, or this one before it was killed, comes to its end first."""
    told = False
    while True:
        found = clusters.find(name)
        if found is None or found.status != "UPDATE_IN_PROGRESS":
            return
        if not told:
            say(f"{name}: a change is under way; it is waited for")
            told = True
        time.sleep(pause_s)


def config_there(cluster: Cluster) -> dict[str, Any]:
    """ParallelCluster's configuration of a cluster. Raises `ClusterError`."""
    try:
        with urllib.request.urlopen(cluster.config_url, timeout=60) as answer:
            found: dict[str, Any] = yaml.safe_load(answer.read())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ClusterError(
            f"the configuration of {cluster.name} cannot be read from the account: {error}"
        ) from None
    return found


def _site(build: Build, old: ClusterFile, actual: Mapping[str, Any]) -> Site:
    """What the configuration of the cluster names that is in the account."""
    own = actual["HeadNode"]["CustomActions"]["OnNodeConfigured"]["Sequence"][0]
    bucket, _, key = str(own["Script"]).removeprefix("s3://").partition("/")
    wheel = next((one.removeprefix("wheel=") for one in own.get("Args", ()) if one.startswith("wheel=")), "")
    plain = Site("", "", bucket, scripts=key.rpartition("/")[0], wheel=wheel)
    if not makes_network(old):
        return _moved(plain, old)
    stack = find_stack(build.account, Names(old.name).network_stack)
    if stack is None:
        raise ClusterError(f"the network of {old.name} is gone; kitae cluster down takes the rest away")
    out = stack.outputs
    subnets = {"public_subnet": out["PublicSubnet"], "private_subnet": out["PrivateSubnet"]}
    return replace(plain, **subnets, groups=(out["NodesGroup"],), ssh_groups=(out["SshGroup"],))


def _moved(site: Site, file: ClusterFile) -> Site:
    """The site with the subnets and groups that a file gives."""
    network = file.network
    if network.public_subnet is None or network.private_subnet is None:
        return site
    given = (network.public_subnet, network.private_subnet)
    return replace(
        site,
        public_subnet=given[0],
        private_subnet=given[1],
        groups=tuple(network.security_groups),
        ssh_groups=(),
    )


def _compared(file: ClusterFile, site: Site) -> dict[str, Any]:
    """What kitae would write, but the guard's words: it reads its limits anew by itself."""
    found = config_of(file, _moved(site, file))
    own = found["HeadNode"]["CustomActions"]["OnNodeConfigured"]["Sequence"][0]
    own["Args"] = [word for word in own["Args"] if not word.startswith(_GUARD)]
    return found


def _rows(
    build: Build,
    name: str,
    actual: Mapping[str, Any],
    base: Mapping[str, Any],
    whole: Mapping[str, Any],
    alone: Mapping[str, Mapping[str, Any]],
) -> dict[str, list[Mapping[str, Any]]]:
    """Rows of each change alone, and of all together; some are allowed only together."""
    engine: Any = build.engine
    together = engine.update_rows(name, actual, {_WHOLE: whole})[_WHOLE]
    by_name = {_identity(row): row for row in together}
    each = engine.update_rows(name, base, alone) if alone else {}
    found = {key: [by_name.get(_identity(row), row) for row in rows] for key, rows in each.items()}
    return {**found, _WHOLE: together}


def _identity(row: Mapping[str, Any]) -> str:
    return repr((row["parameter"], row["old"], row["new"]))


def ends_now(build: Build) -> datetime | None:
    """When the cluster was first made; None where no switch says so."""
    ends = ends_of(find_stack(build.account, build.names.switch_stack))
    return None if ends is None else ends.created
