"""Kinds of things that a cluster may leave behind: how they are listed, what they cost, and how they go.

A thing that is on its way out is listed, as going, until it is gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from kitae.catalog import price_of
from kitae.cluster.aws import Account, plainly
from kitae.cluster.bucket import remove_bucket
from kitae.cluster.money import HOURS_A_MONTH
from kitae.cluster.names import ENGINE_TAG

_GOING = ("shutting-down", "deleting", "DELETING", "DELETE_IN_PROGRESS")
_GONE = ("terminated", "deleted", "DELETE_COMPLETE")
_ZONE_END = ".pcluster."
_RECORDS_AT_ONCE = 500
_OF_THE_ENGINE = re.compile(r"parallelcluster-[0-9a-f]{16}-v1-do-not-delete")
Prices = Mapping[str, float]


@dataclass(frozen=True)
class Thing:
    """One thing of AWS."""

    id: str
    region: str
    tags: Mapping[str, str] = field(default_factory=dict)
    detail: str = ""
    item: str = ""
    """What the catalogue calls it."""
    units: int = 1
    """Of the price: machines or GB."""
    going: bool = False
    """Whether it is being removed."""


@dataclass(frozen=True)
class Kind:
    """One kind of things."""

    name: str
    things: Callable[[Account], Iterator[Thing]]
    remove: Callable[[Account, str], None]
    command: str
    free: bool = False
    """Whether such things cost nothing by themselves."""

    def price(self, thing: Thing, prices: Prices) -> Decimal | None:
        """US dollars an hour; None: unknown."""
        if self.free:
            return Decimal(0)
        if thing.item in prices:
            usd, monthly = (
                Decimal(str(prices[thing.item])),
                thing.item in ("ebs-gp3", "fsx-scratch", "fsx-persistent"),
            )
        else:
            known = price_of(thing.item)
            if known is None:
                return None
            usd, monthly = known.usd, known.unit == "gb-month"
        return usd * thing.units / (HOURS_A_MONTH if monthly else 1)


def _tags(rows: Sequence[Mapping[str, str]] | None) -> dict[str, str]:
    return {row["Key"]: row["Value"] for row in rows or ()}


def _instances(account: Account) -> Iterator[Thing]:
    for group in account.pages("ec2", "describe_instances", "Reservations"):
        for one in group["Instances"]:
            state, kind = one["State"]["Name"], one["InstanceType"]
            if state not in _GONE:
                tags, going = _tags(one.get("Tags")), state in _GOING
                yield Thing(one["InstanceId"], account.region, tags, f"{kind}, {state}", kind, going=going)


def _volumes(account: Account) -> Iterator[Thing]:
    for one in account.pages("ec2", "describe_volumes", "Volumes"):
        tags, size, state = _tags(one.get("Tags")), one["Size"], one["State"]
        if state not in _GONE:
            # One of a machine goes with it, or is free to be deleted once that is gone.
            going = state in _GOING or bool(one["Attachments"])
            yield Thing(one["VolumeId"], account.region, tags, f"{size} GB", "ebs-gp3", size, going)


def _snapshots(account: Account) -> Iterator[Thing]:
    for one in account.pages("ec2", "describe_snapshots", "Snapshots", OwnerIds=["self"]):
        tags = _tags(one.get("Tags"))
        yield Thing(one["SnapshotId"], account.region, tags, f"of {one['VolumeSize']} GB", "snapshot")


def _file_systems(account: Account) -> Iterator[Thing]:
    for one in account.pages("fsx", "describe_file_systems", "FileSystems"):
        state, size, tags = one.get("Lifecycle"), one["StorageCapacity"], _tags(one.get("Tags"))
        if state not in _GONE:
            kind = (one.get("LustreConfiguration") or {}).get("DeploymentType", "")
            item = "fsx-persistent" if kind.startswith("PERSISTENT") else "fsx-scratch"
            going = state in _GOING
            yield Thing(one["FileSystemId"], account.region, tags, f"{size} GB", item, size, going)


def _gateways(account: Account) -> Iterator[Thing]:
    for one in account.pages("ec2", "describe_nat_gateways", "NatGateways"):
        state, tags = one["State"], _tags(one.get("Tags"))
        if state not in _GONE:
            yield Thing(one["NatGatewayId"], account.region, tags, state, "nat", going=state in _GOING)


def _addresses(account: Account) -> Iterator[Thing]:
    for one in account.pages("ec2", "describe_addresses", "Addresses"):
        yield Thing(
            one["AllocationId"], account.region, _tags(one.get("Tags")), one["PublicIp"], "public-ipv4"
        )


def _balancers(account: Account) -> Iterator[Thing]:
    found = account.pages("elbv2", "describe_load_balancers", "LoadBalancers")
    for one in found:
        with plainly("reading the tags of load balancers"):
            rows = account.client("elbv2").describe_tags(ResourceArns=[one["LoadBalancerArn"]])[
                "TagDescriptions"
            ]
        tags = _tags(rows[0]["Tags"] if rows else None)
        yield Thing(one["LoadBalancerArn"], account.region, tags, one["LoadBalancerName"], "load-balancer")


def _buckets(account: Account) -> Iterator[Thing]:
    """By name: `kitae-<cluster>-<account>-<region>`, and the one that ParallelCluster makes for all."""
    end = f"-{account.number}-{account.region}"
    for one in account.pages("s3", "list_buckets", "Buckets"):
        name = one["Name"]
        if _OF_THE_ENGINE.fullmatch(name):
            yield Thing(name, account.region, {}, "of all clusters of ParallelCluster here", "s3", 0)
        if name.startswith("kitae-") and name.endswith(end):
            yield Thing(name, account.region, {"kitae:cluster": name[len("kitae-") : -len(end)]}, "", "s3", 0)


def _log_groups(account: Account) -> Iterator[Thing]:
    for one in account.pages(
        "logs", "describe_log_groups", "logGroups", logGroupNamePrefix="/aws/parallelcluster/"
    ):
        yield Thing(one["logGroupName"], account.region)


def _launch_templates(account: Account) -> Iterator[Thing]:
    """By their tags, and by those that they give to machines: ParallelCluster does not tag templates."""
    for one in account.pages("ec2", "describe_launch_templates", "LaunchTemplates"):
        versions = account.pages(
            "ec2",
            "describe_launch_template_versions",
            "LaunchTemplateVersions",
            LaunchTemplateId=one["LaunchTemplateId"],
            Versions=["$Latest"],
        )
        given = [
            row
            for version in versions
            for kind in version["LaunchTemplateData"].get("TagSpecifications", ())
            for row in kind["Tags"]
        ]
        tags = _tags(given) | _tags(one.get("Tags"))
        yield Thing(one["LaunchTemplateId"], account.region, tags, one["LaunchTemplateName"])


def _stacks(account: Account) -> Iterator[Thing]:
    for one in account.pages("cloudformation", "describe_stacks", "Stacks"):
        state, tags = one["StackStatus"], _tags(one.get("Tags"))
        if state not in _GONE:
            yield Thing(one["StackName"], account.region, tags, state, going=state in _GOING)


def _zones(account: Account) -> Iterator[Thing]:
    """Private names of a cluster's machines: `<cluster>.pcluster`, of the region in which its network is."""
    for one in account.pages("route53", "list_hosted_zones", "HostedZones"):
        if not one["Name"].endswith(_ZONE_END):
            continue
        with plainly(f"looking at the hosted zone {one['Name']}"):
            networks = account.client("route53").get_hosted_zone(Id=one["Id"]).get("VPCs", ())
        if account.region in [network["VPCRegion"] for network in networks]:
            tags = {ENGINE_TAG: one["Name"][: -len(_ZONE_END)]}
            yield Thing(one["Id"].rpartition("/")[2], account.region, tags, one["Name"], "hosted-zone")


def _remove_zone(account: Account, zone: str) -> None:
    """With its records, which stand in the way; those of the zone itself go with it."""
    client = account.client("route53")
    records = account.pages("route53", "list_resource_record_sets", "ResourceRecordSets", HostedZoneId=zone)
    own = [one for one in records if one["Type"] not in ("NS", "SOA")]
    with plainly(f"removing {zone}"):
        for start in range(0, len(own), _RECORDS_AT_ONCE):
            changes = [
                {"Action": "DELETE", "ResourceRecordSet": one} for one in own[start:][:_RECORDS_AT_ONCE]
            ]
            client.change_resource_record_sets(HostedZoneId=zone, ChangeBatch={"Changes": changes})
        client.delete_hosted_zone(Id=zone)


def _schedules(account: Account) -> Iterator[Thing]:
    for one in account.pages("scheduler", "list_schedules", "Schedules"):
        yield Thing(one["Name"], account.region)


def _ec2(operation: str, key: str) -> Callable[[Account, str], None]:
    """Removes by one call of EC2 with one id."""

    def remove(account: Account, thing: str) -> None:
        value = [thing] if key.endswith("Ids") else thing
        with plainly(f"removing {thing}"):
            getattr(account.client("ec2"), operation)(**{key: value})

    return remove


def _of(service: str, operation: str, key: str) -> Callable[[Account, str], None]:
    def remove(account: Account, thing: str) -> None:
        with plainly(f"removing {thing}"):
            getattr(account.client(service), operation)(**{key: thing})

    return remove


_CLI = "aws --region {region}"
KINDS = (
    Kind(
        "instance",
        _instances,
        _ec2("terminate_instances", "InstanceIds"),
        f"{_CLI} ec2 terminate-instances --instance-ids {{id}}",
    ),
    Kind(
        "file system",
        _file_systems,
        _of("fsx", "delete_file_system", "FileSystemId"),
        f"{_CLI} fsx delete-file-system --file-system-id {{id}}",
    ),
    Kind(
        "NAT gateway",
        _gateways,
        _ec2("delete_nat_gateway", "NatGatewayId"),
        f"{_CLI} ec2 delete-nat-gateway --nat-gateway-id {{id}}",
    ),
    Kind(
        "address",
        _addresses,
        _ec2("release_address", "AllocationId"),
        f"{_CLI} ec2 release-address --allocation-id {{id}}",
    ),
    Kind(
        "volume", _volumes, _ec2("delete_volume", "VolumeId"), f"{_CLI} ec2 delete-volume --volume-id {{id}}"
    ),
    Kind(
        "snapshot",
        _snapshots,
        _ec2("delete_snapshot", "SnapshotId"),
        f"{_CLI} ec2 delete-snapshot --snapshot-id {{id}}",
    ),
    Kind(
        "load balancer",
        _balancers,
        _of("elbv2", "delete_load_balancer", "LoadBalancerArn"),
        f"{_CLI} elbv2 delete-load-balancer --load-balancer-arn {{id}}",
    ),
    Kind(
        "hosted zone",
        _zones,
        _remove_zone,
        "aws route53 delete-hosted-zone --id {id}",
    ),
    Kind("bucket", _buckets, remove_bucket, f"{_CLI} s3 rb --force s3://{{id}}"),
    Kind(
        "log group",
        _log_groups,
        _of("logs", "delete_log_group", "logGroupName"),
        f"{_CLI} logs delete-log-group --log-group-name {{id}}",
        free=True,
    ),
    Kind(
        "launch template",
        _launch_templates,
        _ec2("delete_launch_template", "LaunchTemplateId"),
        f"{_CLI} ec2 delete-launch-template --launch-template-id {{id}}",
        free=True,
    ),
    Kind(
        "stack",
        _stacks,
        _of("cloudformation", "delete_stack", "StackName"),
        f"{_CLI} cloudformation delete-stack --stack-name {{id}}",
        free=True,
    ),
    Kind(
        "schedule",
        _schedules,
        _of("scheduler", "delete_schedule", "Name"),
        f"{_CLI} scheduler delete-schedule --name {{id}}",
        free=True,
    ),
)
