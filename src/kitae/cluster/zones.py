"""Zones of an account: their names, which are its own, and their ids, which are everybody's."""

from __future__ import annotations

from kitae.cluster.aws import Account


def zone_name(account: Account, zone: str) -> str | None:
    """The account's name of a zone that is given by name or id; None where it has none."""
    found = account.pages("ec2", "describe_availability_zones", "AvailabilityZones")
    return next((one["ZoneName"] for one in found if zone in (one["ZoneName"], one["ZoneId"])), None)


def zones_with(account: Account, instance: str) -> dict[str, str]:
    """Names of the zones that offer a type, with their ids."""
    offered = account.pages(
        "ec2",
        "describe_instance_type_offerings",
        "InstanceTypeOfferings",
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": [instance]}],
    )
    ids = {
        one["ZoneName"]: one["ZoneId"]
        for one in account.pages("ec2", "describe_availability_zones", "AvailabilityZones")
    }
    return {one["Location"]: ids.get(one["Location"], "?") for one in offered}
