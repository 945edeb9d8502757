"""Stretches of time for which things of a cluster are paid: what is there, and what is gone, by the account.

Machines that were given back are forgotten by EC2 within an hour. Their logs stay: ParallelCluster names
each log after its machine, so the first and the last line say when it was there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

from kitae.cluster.aws import Account
from kitae.cluster.logs import streams_of
from kitae.cluster.money import hourly
from kitae.cluster.names import CLUSTER_TAG, ENGINE_TAG, Names
from kitae.cluster.queue import QueueConfig
from kitae.cluster.schema import ClusterFile
from kitae.cluster.stacks import find_stack

_QUEUE_TAG = "parallelcluster:queue-name"
_BILLS = ("pending", "running", "shutting-down", "stopping")
_WHEN = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) GMT\)")
_ONE = Decimal(1)


@dataclass(frozen=True)
class Span:
    """Something that was paid for a while."""

    what: str
    id: str
    item: str
    """As the catalogue and `prices` name it."""
    units: Decimal
    """Machines, or GB."""
    begin: datetime
    end: datetime | None = None
    """None: it is still there."""
    note: str = ""
    free: bool = False
    """Paid otherwise: a capacity block's machine."""


def spans_of(account: Account, file: ClusterFile, now: datetime) -> list[Span]:
    """All that a cluster has paid for, what is gone included. Raises `ClusterError`."""
    machines = _instances(account, file.name)
    here = {str(one["InstanceId"]) for one in machines}
    gateways = list(_gateways(account, file.name))
    return [
        *_of_machines(machines, file, now),
        *_gone_machines(account, file, here),
        *_disks(account, file.name, here),
        *_file_systems(account, file),
        *gateways,
        *_addresses(account, file.name, {one.id for one in gateways}, now),
    ]


def _mine(name: str) -> list[dict[str, Any]]:
    return [{"Name": f"tag:{ENGINE_TAG}", "Values": [name]}]


def _instances(account: Account, name: str) -> list[dict[str, Any]]:
    groups = account.pages("ec2", "describe_instances", "Reservations", Filters=_mine(name))
    return [one for group in groups for one in group["Instances"]]


def _of_machines(machines: list[dict[str, Any]], file: ClusterFile, now: datetime) -> Iterator[Span]:
    for one in machines:
        tags = _tags(one)
        queue = next((each for each in file.queues if each.name == tags.get(_QUEUE_TAG)), None)
        what = f"queue {queue.name}" if queue is not None else "head node"
        begin, end = _begin(one), _end(one, now)
        free = queue is not None and queue.capacity.kind == "capacity-block"
        yield Span(what, one["InstanceId"], one["InstanceType"], _ONE, begin, end, free=free)
        if one["State"]["Name"] == "terminated" and queue is not None:
            yield _disk_of(queue, one["InstanceId"], begin, end)
        if queue is None and one.get("PublicIpAddress"):
            yield Span("address of the head node", one["PublicIpAddress"], "public-ipv4", _ONE, begin, end)


def _begin(one: Mapping[str, Any]) -> datetime:
    """When it came first: a launch time is that of the last start, a disk was there from the beginning."""
    disks = [each["Ebs"]["AttachTime"] for each in one.get("BlockDeviceMappings", ()) if "Ebs" in each]
    found: datetime = min([one["LaunchTime"], *disks])
    return found


def _end(one: Mapping[str, Any], now: datetime) -> datetime | None:
    if one["State"]["Name"] in _BILLS:
        return None
    told = _WHEN.search(one.get("StateTransitionReason", ""))
    if told is None:
        return now
    return datetime.strptime(told[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)


def _gone_machines(account: Account, file: ClusterFile, here: set[str]) -> Iterator[Span]:
    """Those of whom only logs tell. Which queue one was of they do not say: the dearest is taken."""
    dearest = max(file.queues, key=lambda queue: hourly(queue.instance, file.prices) or Decimal(0))
    several = len({queue.instance for queue in file.queues}) > 1
    note = "by its logs" + (", as of the dearest queue" if several else "")
    for machine, (begin, end) in _by_machine(account, file.name).items():
        if machine not in here:
            free = dearest.capacity.kind == "capacity-block" and not several
            yield Span(f"queue {dearest.name}", machine, dearest.instance, _ONE, begin, end, note, free)
            yield _disk_of(dearest, machine, begin, end)


def _by_machine(account: Account, name: str) -> dict[str, tuple[datetime, datetime]]:
    found: dict[str, tuple[datetime, datetime]] = {}
    for stream in streams_of(account, name):
        if stream.machine and stream.first is not None and stream.last is not None:
            first, last = found.get(stream.machine, (stream.first, stream.last))
            found[stream.machine] = (min(first, stream.first), max(last, stream.last))
    return found


def _disk_of(queue: QueueConfig, machine: str, begin: datetime, end: datetime | None) -> Span:
    return Span("root disk, gone", machine, "ebs-gp3", Decimal(queue.disk_gb), begin, end)


def _disks(account: Account, name: str, here: set[str]) -> Iterator[Span]:
    for one in account.pages("ec2", "describe_volumes", "Volumes"):
        attached = {each["InstanceId"] for each in one["Attachments"]}
        if _is_of(_tags(one), name) or attached & here:
            yield Span("disk", one["VolumeId"], "ebs-gp3", Decimal(one["Size"]), one["CreateTime"])


def _file_systems(account: Account, file: ClusterFile) -> Iterator[Span]:
    here, life = set(), _life(account, file.name)
    for one in account.pages("fsx", "describe_file_systems", "FileSystems"):
        if _is_of(_tags(one), file.name):
            here.add(one["FileSystemId"])
            kind = (one.get("LustreConfiguration") or {}).get("DeploymentType", "")
            begin = one["CreationTime"] if life is None else max(life, one["CreationTime"])
            yield _file_system(one["FileSystemId"], kind, one["StorageCapacity"], begin, None)
    yield from _gone_file_systems(account, file.name, here)


def _life(account: Account, name: str) -> datetime | None:
    """Since when this cluster is: storage that an earlier one of the name left is its own before that."""
    names = Names(name)
    stacks = [find_stack(account, one) for one in (names.switch_stack, names.network_stack)]
    return min((one.created for one in stacks if one is not None and one.created is not None), default=None)


def _file_system(id_: str, kind: str, size: object, begin: datetime, end: datetime | None) -> Span:
    item = "fsx-persistent" if kind.startswith("PERSISTENT") else "fsx-scratch"
    return Span("FSx for Lustre", id_, item, Decimal(str(size)), begin, end)


def _gone_file_systems(account: Account, name: str, here: set[str]) -> Iterator[Span]:
    """Those that an update deleted: the events of the cluster's stack tell of them."""
    if find_stack(account, name) is None:
        return
    events = account.pages("cloudformation", "describe_stack_events", "StackEvents", StackName=name)
    of_one: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if event["ResourceType"] == "AWS::FSx::FileSystem" and event.get("PhysicalResourceId"):
            of_one.setdefault(event["PhysicalResourceId"], []).append(event)
    for id_, told in of_one.items():
        over = [event["Timestamp"] for event in told if event["ResourceStatus"] == "DELETE_COMPLETE"]
        if id_ in here or not over:
            continue
        made = json.loads(
            next((event["ResourceProperties"] for event in told if event.get("ResourceProperties")), "{}")
        )
        kind = (made.get("LustreConfiguration") or {}).get("DeploymentType", "")
        begin = min(event["Timestamp"] for event in told)
        yield _file_system(id_, kind, made.get("StorageCapacity", 0), begin, max(over))


def _gateways(account: Account, name: str) -> Iterator[Span]:
    """With their addresses, which are held as long at least."""
    for one in account.pages("ec2", "describe_nat_gateways", "NatGateways"):
        if _is_of(_tags(one), name):
            begin, end = one["CreateTime"], one.get("DeleteTime") if one["State"] == "deleted" else None
            yield Span("NAT gateway", one["NatGatewayId"], "nat", _ONE, begin, end)
            for address in one.get("NatGatewayAddresses", ()):
                yield Span("address of NAT", address["AllocationId"], "public-ipv4", _ONE, begin, end)


def _addresses(account: Account, name: str, known: set[str], now: datetime) -> Iterator[Span]:
    """Others do not say since when they are held; they came with the network."""
    found = [
        one for one in account.pages("ec2", "describe_addresses", "Addresses") if _is_of(_tags(one), name)
    ]
    others = [one for one in found if one["AllocationId"] not in known]
    if not others:
        return
    network = find_stack(account, Names(name).network_stack)
    begin = now if network is None or network.created is None else network.created
    for one in others:
        yield Span("address", one["AllocationId"], "public-ipv4", _ONE, begin)


def _tags(one: Mapping[str, Any]) -> dict[str, str]:
    return {row["Key"]: row["Value"] for row in one.get("Tags") or ()}


def _is_of(tags: Mapping[str, str], name: str) -> bool:
    return name in (tags.get(CLUSTER_TAG), tags.get(ENGINE_TAG))
