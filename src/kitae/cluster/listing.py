"""All clusters of an account: found by the tags of their stacks, in every region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from kitae.cluster.aws import Account
from kitae.cluster.kept import kept
from kitae.cluster.kinds import KINDS, Prices
from kitae.cluster.leftovers import belongs
from kitae.cluster.names import CLUSTER_TAG, ENGINE_TAG, Names
from kitae.cluster.stacks import Stack, stack_of
from kitae.errors import ClusterError

_AT_ONCE = 8
_STANDS = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE")


@dataclass(frozen=True)
class Found:
    """One cluster."""

    name: str
    region: str
    state: str
    since: datetime | None
    until: str | None
    """When AWS ends it; None: nothing does."""
    maker: str
    usd_an_hour: Decimal | None = None
    """Of what has a price; None: it could not be looked at."""
    machines: int = 0

    def line(self) -> dict[str, object]:
        """As JSON."""
        since = None if self.since is None else self.since.isoformat()
        usd = None if self.usd_an_hour is None else str(self.usd_an_hour)
        return {**vars(self), "since": since, "usd_an_hour": usd}


@dataclass
class _Stacks:
    """Stacks of one cluster."""

    by_name: dict[str, Stack] = field(default_factory=dict)
    kitae: bool = False


def regions_of(account: Account) -> list[str]:
    """Regions that the account may use. Raises `ClusterError`."""
    return sorted(str(one["RegionName"]) for one in account.pages("ec2", "describe_regions", "Regions"))


def clusters_of(
    account: Callable[[str], Account], regions: Sequence[str], say: Callable[[str], None]
) -> list[Found]:
    """Clusters of these regions. A region that refuses is told; raises `ClusterError` where all do."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda region: _tried(account(region)), regions))
    failed = {
        region: answer for region, answer in zip(regions, answers, strict=True) if isinstance(answer, str)
    }
    if failed and len(failed) == len(regions):
        raise ClusterError(next(iter(failed.values())))
    for region, why in failed.items():
        say(f"{region} was not looked at: {why}")
    return [one for answer in answers if not isinstance(answer, str) for one in answer]


def _tried(account: Account) -> list[Found] | str:
    try:
        return _in_region(account)
    except ClusterError as error:
        return str(error)


def _in_region(account: Account) -> list[Found]:
    found: dict[str, _Stacks] = {}
    for row in account.pages("cloudformation", "describe_stacks", "Stacks"):
        stack = stack_of(row)
        name = stack.tags.get(CLUSTER_TAG) or stack.tags.get(ENGINE_TAG)
        if name is None or row.get("ParentId") or stack.status == "DELETE_COMPLETE":
            continue
        stacks = found.setdefault(name, _Stacks())
        stacks.by_name[stack.name] = stack
        stacks.kitae |= CLUSTER_TAG in stack.tags
    bare = [_found(account, name, stacks) for name, stacks in sorted(found.items())]
    return [_priced(account, one) for one in bare]


def _found(account: Account, name: str, stacks: _Stacks) -> Found:
    names = Names(name)
    cluster = stacks.by_name.get(names.cluster_stack)
    switch = stacks.by_name.get(names.switch_stack)
    times = [one.created for one in stacks.by_name.values() if one.created is not None]
    return Found(
        name,
        account.region,
        _state(cluster),
        min(times, default=None),
        None if switch is None else switch.outputs.get("Until"),
        "kitae" if stacks.kitae else "ParallelCluster",
    )


def _state(cluster: Stack | None) -> str:
    if cluster is None:
        return "no cluster, but what belongs to one"
    return "stands" if cluster.status in _STANDS else cluster.status


def _priced(account: Account, found: Found) -> Found:
    """With what it costs now, where the login may look."""
    try:
        file = kept(account, found.name)
        prices: Prices = {} if file is None else file.prices
        mine = [
            (kind, thing)
            for kind in KINDS
            if not kind.free
            for thing in kind.things(account)
            if belongs(thing, found.name)
        ]
    except ClusterError:
        return found
    usd = sum((kind.price(thing, prices) or Decimal(0) for kind, thing in mine), Decimal(0))
    machines = sum(kind.name == "instance" for kind, _ in mine)
    return Found(**{**vars(found), "usd_an_hour": usd, "machines": machines})
