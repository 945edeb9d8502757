"""What is left of clusters in a region: an independent look, by tag and by name, at everything that bills.

It takes no stack's word for what it deleted. Clusters that kitae did not make are found, too, by the tag
that ParallelCluster puts on all that it makes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from kitae.cluster.aws import Account
from kitae.cluster.kinds import KINDS, Kind, Thing
from kitae.cluster.money import dollars
from kitae.cluster.names import CLUSTER_TAG, ENGINE_TAG


@dataclass(frozen=True)
class Leftover:
    """One thing that is still there."""

    kind: Kind
    thing: Thing
    usd: Decimal | None
    """An hour; None: unknown."""

    @property
    def command(self) -> str:
        """What removes it."""
        return self.kind.command.format(id=self.thing.id, region=self.thing.region)

    def line(self) -> str:
        """As it is printed."""
        price = "price unknown" if self.usd is None else f"{dollars(self.usd)} an hour"
        detail = f" ({self.thing.detail})" if self.thing.detail else ""
        return f"{self.kind.name} {self.thing.id}{detail}: {price}; {self.command}"


def scan(account: Account, name: str | None, prices: Mapping[str, float] | None = None) -> list[Leftover]:
    """Everything of a cluster, or of any cluster. Raises `ClusterError` where a kind cannot be looked at."""
    return [
        Leftover(kind, thing, kind.price(thing, prices or {}))
        for kind in KINDS
        for thing in kind.things(account)
        if belongs(thing, name)
    ]


def belongs(thing: Thing, name: str | None) -> bool:
    """Whether a thing is of the cluster, by its tags or its name; of any, where none is named."""
    owners = {value for key, value in thing.tags.items() if key in (CLUSTER_TAG, ENGINE_TAG)}
    if name is None:
        return bool(owners) or thing.id.startswith(("kitae-", "parallelcluster-", "/aws/parallelcluster/"))
    return name in owners or re.fullmatch(_named(name), thing.id) is not None


def _named(name: str) -> str:
    """Pattern of names that are made of a cluster's; those of `a` are not those of `a-b`."""
    # ParallelCluster's log groups end with the minute in which the cluster was made.
    return rf"kitae-{re.escape(name)}-(switch|network)|/aws/parallelcluster/{re.escape(name)}-\d{{12}}"


def total(found: list[Leftover]) -> Decimal:
    """US dollars an hour of what has a price."""
    return sum((one.usd for one in found if one.usd is not None), Decimal(0))
