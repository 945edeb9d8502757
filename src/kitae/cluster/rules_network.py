"""Rules of regions, zones, subnets, security groups and who may come in."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from kitae.catalog.aws import offered_regions, offered_zones, regions, zone_prefix
from kitae.cluster.findings import Case, Said
from kitae.cluster.names import LONGEST_NAME
from kitae.cluster.resolved import machine_of, makes_network, uses_efa
from kitae.suggest import did_you_mean

_WIDEST, _NARROWEST = 16, 24
_RESERVED_TAGS = ("aws:", "parallelcluster:", "kitae:")


def cluster_name(case: Case) -> Iterator[Said]:
    """The name is short enough for all that is named after it."""
    name = case.file.name
    if len(name) > LONGEST_NAME:
        yield Said(
            ("name",),
            f"{name!r} has {len(name)} letters; {LONGEST_NAME} are allowed, as a bucket's name is made of it",
        )


def region_known(case: Case) -> Iterator[Said]:
    """The region exists."""
    region = case.file.region
    if region not in regions():
        yield Said(
            ("region",), f"no region is called {region!r}{did_you_mean(region, regions())}".rstrip(".")
        )


def one_zone(case: Case) -> Iterator[Said]:
    """All machines are in one zone."""
    if len(re.split(r"[,\s]+", case.file.zone.strip())) > 1:
        yield Said(("zone",), f"{case.file.zone!r}: EFA and FSx work within one zone; keep one")


def zone_of_region(case: Case) -> Iterator[Said]:
    """The zone lies in the region."""
    region, zone = case.file.region, case.file.zone
    if region not in regions() or re.search(r"[,\s]", zone):
        return
    prefix = zone_prefix(region)
    if not re.fullmatch(rf"{region}[a-z]|{prefix}-az\d+", zone):
        yield Said(
            ("zone",),
            f"{zone!r} is no zone of {region}; write a name such as {region}a, or an id such as {prefix}-az1",
        )


def type_in_zone(case: Case) -> Iterator[Said]:
    """The zone, or at least the region, has the types."""
    zone, region = case.file.zone, case.file.region
    if region not in regions():
        return
    prefix = f"{zone_prefix(region)}-"
    for index, queue in enumerate(case.file.queues):
        name, zones = queue.instance, offered_zones(queue.instance)
        if zones is None:
            continue
        here = [one for one in zones if one.startswith(prefix)]
        if not here:
            elsewhere = ", ".join(offered_regions(name) or ())
            yield Said(
                ("queues", index, "instance"), f"{name} is not offered in {region}; it is in {elsewhere}"
            )
        elif zone.startswith(prefix) and zone not in here:
            yield Said(("zone",), f"{name} is not offered in {zone}; in {region} it is in {', '.join(here)}")


def subnets_together(case: Case) -> Iterator[Said]:
    """Given subnets are two, and security groups belong to them."""
    network = case.file.network
    if (network.public_subnet is None) != (network.private_subnet is None):
        missing = "private_subnet" if network.private_subnet is None else "public_subnet"
        yield Said(
            ("network",), f"{missing} is missing; give both, in one zone, or neither: a network is made then"
        )
    if network.public_subnet is not None and network.public_subnet == network.private_subnet:
        yield Said(
            ("network", "private_subnet"),
            "the machines with EFA get no public address and need a subnet with a NAT gateway; "
            "give another than the head node's",
        )
    if network.security_groups and makes_network(case.file):
        yield Said(
            ("network", "security_groups"),
            "they belong to a network; give its subnets, too, or take them out",
        )


def security_group_self(case: Case) -> Iterator[Said]:
    """Given security groups let machines with EFA reach each other."""
    network = case.file.network
    efa = [queue.name for queue in case.file.queues if uses_efa(queue)]
    if network.security_groups and efa and not network.security_group_self_rule:
        yield Said(
            ("network", "security_groups"),
            f"queue {efa[0]} uses EFA, which needs a security group that allows all traffic with itself; "
            "add that rule to each and write security_group_self_rule: true",
        )
    if network.security_group_self_rule and not network.security_groups:
        yield Said(
            ("network", "security_group_self_rule"),
            "it has no effect without security_groups; take it out: groups that are made have the rule",
        )


def network_size(case: Case) -> Iterator[Said]:
    """The network has room, and addresses of its own."""
    text, where = case.file.network.cidr, ("network", "cidr")
    try:
        found = ipaddress.ip_network(text)
    except ValueError as error:
        yield Said(where, f"{text!r} is no network ({error}); write one such as 10.60.0.0/16")
        return
    if not found.is_private:
        yield Said(where, f"{text} are addresses of others; write private ones, such as 10.60.0.0/16")
    if not _WIDEST <= found.prefixlen <= _NARROWEST:
        yield Said(
            where, f"/{found.prefixlen} is not between /{_WIDEST} and /{_NARROWEST}; write one such as /16"
        )
    machines = sum(queue.max for queue in case.file.queues)
    room = found.num_addresses // 2 - 16
    if found.prefixlen <= _NARROWEST and machines > room:
        yield Said(where, f"{machines} machines do not fit half of it ({room} addresses); write a wider one")


def ssh_open(case: Case) -> Iterator[Said]:
    """Nobody reaches the head node who was not named."""
    head = case.file.head
    own_group = not makes_network(case.file) and not case.file.network.security_groups
    if own_group and len(head.allow_ssh_from) > 1:
        yield Said(
            ("head", "allow_ssh_from", 1),
            "the group that ParallelCluster makes for given subnets takes one range; keep one, or give "
            "network.security_groups",
        )
    for index, text in enumerate(head.allow_ssh_from):
        where = ("head", "allow_ssh_from", index)
        try:
            found = ipaddress.ip_network(text)
        except ValueError as error:
            yield Said(
                where, f"{text!r} is no range of addresses ({error}); write one such as 203.0.113.7/32"
            )
            continue
        if found.prefixlen == 0 and not head.open_to_everybody:
            yield Said(
                where,
                "it opens ssh to everybody; write your own address, or type head.open_to_everybody: true",
            )


def ssh_key(case: Case) -> Iterator[Said]:
    """Someone with a key can come in."""
    head = case.file.head
    if head.allow_ssh_from and head.ssh_key is None:
        yield Said(("head", "allow_ssh_from"), "it has no effect without head.ssh_key; name a key pair")
    if head.ssh_key is not None and not head.allow_ssh_from:
        yield Said(
            ("head", "ssh_key"),
            "nobody may use it: allow_ssh_from is empty; add your address, such as 203.0.113.7/32",
            "warning",
        )


def tags(case: Case) -> Iterator[Said]:
    """Tags are of the user's own names."""
    for name, value in case.file.tags.items():
        if name.startswith(_RESERVED_TAGS):
            yield Said(
                ("tags", name), f"tags that begin with {name.partition(':')[0]}: are not yours; rename it"
            )
        if not 1 <= len(name) <= 128 or len(value) > 256:
            yield Said(
                ("tags", name), "a tag's name has 1 to 128 letters and its value up to 256; shorten it"
            )
    if len(case.file.tags) > 40:
        yield Said(("tags",), f"{len(case.file.tags)} tags; 40 are allowed beside kitae's")


def unknown_machine(case: Case) -> Iterator[Said]:
    """Zones of types without an entry were not looked at."""
    for index, queue in enumerate(case.file.queues):
        if machine_of(queue) is not None and offered_zones(queue.instance) is None:
            yield Said(
                ("queues", index, "instance"),
                f"where {queue.instance} is offered is not known here: kitae cluster quota asks the account",
                "note",
            )
