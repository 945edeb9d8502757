"""Regions, zones, quotas and ParallelCluster: what a cluster file is checked against without an account."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from kitae.catalog.instances import Instance, instances
from kitae.catalog.reading import read_table

_COMPASS = ("north", "south", "east", "west", "central")


@dataclass(frozen=True)
class Quota:
    """A service quota: vCPU of instances that run at once, or a number of things."""

    service: str
    code: str
    name: str
    default: int
    """What a new account has."""


def regions() -> tuple[str, ...]:
    """Names of all regions that are known."""
    return tuple(read_table("aws")["regions"]["names"])


def zone_prefix(region: str) -> str:
    """What ids of the region's zones begin with: `usw2` of us-west-2, `apne1` of ap-northeast-1."""
    area, direction, number = region.rsplit("-", 2)
    letters = re.findall("|".join(_COMPASS), direction)
    return area.replace("-", "") + "".join(word[0] for word in letters) + number


def offered_zones(instance: str) -> tuple[str, ...] | None:
    """Ids of the zones in which a type was offered; None where nothing is known of it."""
    found = read_table("aws")["offered"].get(instance)
    return None if found is None else tuple(found)


def offered_regions(instance: str) -> tuple[str, ...] | None:
    """Regions in which a type was offered; None where nothing is known of it."""
    zones = offered_zones(instance)
    if zones is None:
        return None
    prefixes = {zone.partition("-")[0] for zone in zones}
    return tuple(name for name in regions() if zone_prefix(name) in prefixes)


def is_type(name: str) -> bool:
    """Whether a name of the catalogue is a type that EC2 starts, and not a group of machines."""
    return re.fullmatch(r"[a-z0-9-]+\.(\d*xlarge|metal)", name) is not None


def fleet_types() -> tuple[Instance, ...]:
    """Every machine of the catalogue that a queue can have: with an accelerator, and started by EC2."""
    return tuple(one for one in instances().values() if one.chip is not None and is_type(one.name))


def vcpu_quota(instance: str, *, spot: bool) -> Quota | None:
    """The quota that counts a type's vCPU; None where none is known for its family."""
    family = re.match(r"[a-z]+", instance)
    name = family[0] if family is not None else ""
    for row in read_table("aws")["quotas"]:
        if name in row["families"]:
            kind = "spot" if spot else "on_demand"
            return Quota("ec2", row[kind], row[f"{kind}_name"], row["default"])
    return None


@cache
def network_quotas() -> tuple[Quota, ...]:
    """Quotas of which a network takes one each."""
    rows = read_table("aws")["needs"]
    return tuple(Quota(row["service"], row["code"], row["name"], row["default"]) for row in rows)


def parallelcluster_version() -> str:
    """The version whose command line and schema are used."""
    return str(read_table("aws")["parallelcluster"]["version"])


def parallelcluster_images() -> tuple[str, ...]:
    """Operating systems that it has images of."""
    return tuple(read_table("aws")["parallelcluster"]["images"])
