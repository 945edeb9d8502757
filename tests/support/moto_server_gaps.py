"""What moto lacks: in CloudFormation deletes of parts of a network and two types, times of file systems."""

from __future__ import annotations

import time
from typing import Any

from moto.core.common_models import CloudFormationModel
from moto.ec2.models import ec2_backends
from moto.ec2.models.elastic_ip_addresses import ElasticAddress
from moto.ec2.models.internet_gateways import InternetGateway
from moto.ec2.models.nat_gateways import NatGateway
from moto.ec2.models.route_tables import RouteTable
from moto.ec2.models.vpcs import VPCEndPoint
from moto.fsx.models import FileSystem
from moto.scheduler.models import scheduler_backends


def _delete_nat(resource: str, json_: Any, account: str, region: str) -> None:
    ec2_backends[account][region].delete_nat_gateway(resource)


def _delete_gateway(resource: str, json_: Any, account: str, region: str) -> None:
    backend = ec2_backends[account][region]
    vpc = backend.internet_gateways[resource].vpc
    if vpc is not None:
        backend.detach_internet_gateway(resource, vpc.id)
    backend.delete_internet_gateway(resource)


def _delete_routes(resource: str, json_: Any, account: str, region: str) -> None:
    backend = ec2_backends[account][region]
    for association in list(backend.route_tables[resource]._associations):
        backend.disassociate_route_table(association)
    backend.delete_route_table(resource)


def _delete_address(resource: str, json_: Any, account: str, region: str) -> None:
    backend = ec2_backends[account][region]
    for address in [one for one in backend.addresses if resource in (one.public_ip, one.allocation_id)]:
        backend.release_address(allocation_id=address.allocation_id)


def _delete_endpoint(resource: str, json_: Any, account: str, region: str) -> None:
    ec2_backends[account][region].vpc_end_points.pop(resource, None)


class GroupEgress(CloudFormationModel):
    """AWS::EC2::SecurityGroupEgress between groups."""

    __module__ = "moto.ec2.gaps"  # moto wants to see a service there

    def __init__(self, name: str) -> None:
        self.physical_resource_id = name

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::EC2::SecurityGroupEgress"

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **kwargs: Any
    ) -> GroupEgress:
        wanted = cloudformation_json["Properties"]
        target = [{"GroupId": wanted["DestinationSecurityGroupId"]}]
        ec2_backends[account_id][region_name].authorize_security_group_egress(
            wanted["GroupId"], wanted["IpProtocol"], None, None, [], source_groups=target
        )
        return cls(resource_name)

    @classmethod
    def delete_from_cloudformation_json(cls, resource: str, json_: Any, account: str, region: str) -> None:
        """It goes with its group."""


class Schedule(CloudFormationModel):
    """AWS::Scheduler::Schedule."""

    __module__ = "moto.scheduler.gaps"

    def __init__(self, name: str) -> None:
        self.physical_resource_id = name

    @staticmethod
    def cloudformation_name_type() -> str:
        return "Name"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::Scheduler::Schedule"

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **kwargs: Any
    ) -> Schedule:
        wanted = cloudformation_json["Properties"]
        scheduler_backends[account_id][region_name].create_schedule(
            description="",
            name=wanted["Name"],
            group_name="default",
            end_date=wanted["EndDate"],
            flexible_time_window=wanted["FlexibleTimeWindow"],
            kms_key_arn="",
            schedule_expression=wanted["ScheduleExpression"],
            schedule_expression_timezone="",
            start_date=wanted["StartDate"],
            state="ENABLED",
            target=wanted["Target"],
            action_after_completion=None,
        )
        return cls(wanted["Name"])

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: Any,
        new_resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
    ) -> Schedule:
        cls.delete_from_cloudformation_json(
            original_resource.physical_resource_id, {}, account_id, region_name
        )
        return cls.create_from_cloudformation_json(
            new_resource_name, cloudformation_json, account_id, region_name
        )

    @classmethod
    def delete_from_cloudformation_json(cls, resource: str, json_: Any, account: str, region: str) -> None:
        backend = scheduler_backends[account][region]
        if resource in backend.schedule_groups["default"].schedules:
            backend.delete_schedule("default", resource)


_DELETES = {
    NatGateway: _delete_nat,
    InternetGateway: _delete_gateway,
    RouteTable: _delete_routes,
    ElasticAddress: _delete_address,
    VPCEndPoint: _delete_endpoint,
}


def add_what_is_missing() -> None:
    """Teach moto to delete what it makes; the two types are known by having been defined."""
    for model, delete in _DELETES.items():
        model.delete_from_cloudformation_json = staticmethod(delete)
    FileSystem.to_dict = _timed(FileSystem.to_dict)


def _timed(told: Any) -> Any:
    """A file system that tells since when it is there."""

    def to_dict(self: FileSystem) -> dict[str, Any]:
        self.__dict__.setdefault("since", time.time())
        return {**told(self), "CreationTime": self.__dict__["since"]}

    return to_dict
