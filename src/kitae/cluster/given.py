"""What a cluster file names that has to be there: a key pair, subnets, security groups, reservations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kitae.cluster.aws import Account
from kitae.cluster.resolved import uses_efa
from kitae.cluster.said import Answer
from kitae.cluster.schema import ClusterFile
from kitae.cluster.zones import zone_name
from kitae.errors import ClusterError


def key_pair(account: Account, file: ClusterFile) -> Iterator[Answer]:
    """The key pair for ssh."""
    name = file.head.ssh_key
    if name is None:
        return
    known = [one["KeyName"] for one in account.pages("ec2", "describe_key_pairs", "KeyPairs")]
    if name in known:
        yield Answer("ok", f"the key pair {name} is there")
    else:
        there = f"there are {', '.join(sorted(known))}" if known else "there is none"
        yield Answer("wrong", f"no key pair is called {name} in {account.region}; {there}")


def given_network(account: Account, file: ClusterFile) -> Iterator[Answer]:
    """Given subnets are in the zone, the private one has a way out, and groups let their machines meet."""
    network = file.network
    if network.public_subnet is None or network.private_subnet is None:
        return
    ids = [network.public_subnet, network.private_subnet]
    try:
        found = account.pages("ec2", "describe_subnets", "Subnets", SubnetIds=ids)
    except ClusterError as error:
        yield Answer("wrong", f"the subnets {' and '.join(ids)}: {error}")
        return
    zone = zone_name(account, file.zone)
    for one in found:
        if one["AvailabilityZone"] != zone:
            yield Answer(
                "wrong", f"{one['SubnetId']} is in {one['AvailabilityZone']}, and all has to be in {zone}"
            )
    if len({one["VpcId"] for one in found}) > 1:
        yield Answer("wrong", f"{' and '.join(ids)} are of different networks; name two of one")
    yield _way_out(account, network.private_subnet)
    yield from _groups(account, file)


def _way_out(account: Account, subnet: str) -> Answer:
    tables = account.pages(
        "ec2",
        "describe_route_tables",
        "RouteTables",
        Filters=[{"Name": "association.subnet-id", "Values": [subnet]}],
    )
    routes = [route for table in tables for route in table["Routes"]]
    if any(route.get("DestinationCidrBlock") == "0.0.0.0/0" for route in routes):
        return Answer("ok", f"{subnet} has a way out")
    return Answer(
        "wrong", f"{subnet} has no way out, and nodes fetch packages; route it through a NAT gateway"
    )


def _groups(account: Account, file: ClusterFile) -> Iterator[Answer]:
    if not file.network.security_groups or not any(uses_efa(queue) for queue in file.queues):
        return
    ids = file.network.security_groups
    for group in account.pages("ec2", "describe_security_groups", "SecurityGroups", GroupIds=ids):
        closed = [way for way, rules in _WAYS.items() if not _meets_itself(group, rules)]
        if closed:
            yield Answer(
                "wrong",
                f"{group['GroupId']} does not allow all traffic {' and '.join(closed)} itself, as EFA "
                "needs; add that rule",
            )
        else:
            yield Answer("ok", f"{group['GroupId']} allows all traffic with itself")


_WAYS = {"from": "IpPermissions", "to": "IpPermissionsEgress"}


def _meets_itself(group: dict[str, Any], rules: str) -> bool:
    return any(
        rule["IpProtocol"] == "-1" and pair["GroupId"] == group["GroupId"]
        for rule in group[rules]
        for pair in rule["UserIdGroupPairs"]
    )


def reservations(account: Account, file: ClusterFile) -> Iterator[Answer]:
    """Reservations and capacity blocks are active, of the queue's type, in the zone, and large enough."""
    zone = None
    for queue in file.queues:
        if queue.capacity.id is None:
            continue
        try:
            [found] = account.pages(
                "ec2",
                "describe_capacity_reservations",
                "CapacityReservations",
                CapacityReservationIds=[queue.capacity.id],
            )
        except (ClusterError, ValueError) as error:
            yield Answer("wrong", f"{queue.capacity.id} of queue {queue.name}: {error or 'it is not there'}")
            continue
        zone = zone or zone_name(account, file.zone)
        wrong = [
            text
            for text, holds in (
                (f"it is {found['State']}", found["State"] == "active"),
                (f"it is of {found['InstanceType']}", found["InstanceType"] == queue.instance),
                (f"it is in {found['AvailabilityZone']}", found["AvailabilityZone"] == zone),
                (
                    f"{found['AvailableInstanceCount']} are free",
                    found["AvailableInstanceCount"] >= queue.max,
                ),
            )
            if not holds
        ]
        about = f"{queue.capacity.id} for {queue.max} x {queue.instance} in {zone}"
        yield (
            Answer("wrong", f"{about}: {', '.join(wrong)}") if wrong else Answer("ok", f"{about}: is active")
        )
