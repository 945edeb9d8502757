"""The network of a cluster as one CloudFormation template: what is made together goes together.

A public subnet for the head node, a private one for the machines with a NAT gateway as their way out, an
endpoint so that S3's traffic does not go through it, and security groups. All in one zone.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from kitae.cluster.names import Names
from kitae.cluster.schema import ClusterFile

Template = dict[str, Any]
_ANYWHERE = "0.0.0.0/0"
_SSH = 22


def network_template(file: ClusterFile) -> Template:
    """The template; its one parameter is the zone's name in the account."""
    resources = {**_subnets(file), **_ways_out(file), **_groups(file)}
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Network of the cluster {file.name}, made by kitae",
        "Parameters": {"Zone": {"Type": "String"}},
        "Resources": resources,
        "Outputs": {
            name: {"Value": {"Ref": name}}
            for name in ("Vpc", "PublicSubnet", "PrivateSubnet", "NodesGroup", "SshGroup")
        },
    }


def halves(cidr: str) -> tuple[str, str]:
    """Addresses of the public and of the private subnet."""
    public, private = ipaddress.ip_network(cidr).subnets(prefixlen_diff=1)
    return str(public), str(private)


def _resource(kind: str, /, **properties: Any) -> Template:
    return {"Type": f"AWS::EC2::{kind}", "Properties": properties}


def _ref(name: str) -> dict[str, str]:
    return {"Ref": name}


def _tags(file: ClusterFile, what: str) -> list[dict[str, str]]:
    tags = Names(file.name).tags(file.tags) | {"Name": f"{file.name} {what}"}
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _subnets(file: ClusterFile) -> Template:
    public, private = halves(file.network.cidr)
    zone = _ref("Zone")
    return {
        "Vpc": _resource(
            "VPC",
            CidrBlock=file.network.cidr,
            EnableDnsSupport=True,
            EnableDnsHostnames=True,
            Tags=_tags(file, "network"),
        ),
        "PublicSubnet": _resource(
            "Subnet",
            VpcId=_ref("Vpc"),
            CidrBlock=public,
            AvailabilityZone=zone,
            MapPublicIpOnLaunch=True,
            Tags=_tags(file, "public"),
        ),
        "PrivateSubnet": _resource(
            "Subnet", VpcId=_ref("Vpc"), CidrBlock=private, AvailabilityZone=zone, Tags=_tags(file, "private")
        ),
    }


def _ways_out(file: ClusterFile) -> Template:
    gateway: Template = {
        "Gateway": _resource("InternetGateway", Tags=_tags(file, "gateway")),
        "Attachment": _resource("VPCGatewayAttachment", VpcId=_ref("Vpc"), InternetGatewayId=_ref("Gateway")),
        "NatAddress": {
            **_resource("EIP", Domain="vpc", Tags=_tags(file, "NAT")),
            "DependsOn": "Attachment",
        },
        "Nat": _resource(
            "NatGateway",
            SubnetId=_ref("PublicSubnet"),
            AllocationId={"Fn::GetAtt": ["NatAddress", "AllocationId"]},
            Tags=_tags(file, "NAT"),
        ),
    }
    for side, target in (
        ("Public", {"GatewayId": _ref("Gateway")}),
        ("Private", {"NatGatewayId": _ref("Nat")}),
    ):
        gateway[f"{side}Routes"] = _resource("RouteTable", VpcId=_ref("Vpc"), Tags=_tags(file, side.lower()))
        gateway[f"{side}Out"] = {
            **_resource(
                "Route", RouteTableId=_ref(f"{side}Routes"), DestinationCidrBlock=_ANYWHERE, **target
            ),
            "DependsOn": "Attachment",
        }
        gateway[f"{side}Association"] = _resource(
            "SubnetRouteTableAssociation", SubnetId=_ref(f"{side}Subnet"), RouteTableId=_ref(f"{side}Routes")
        )
    gateway["S3Endpoint"] = _resource(
        "VPCEndpoint",
        VpcId=_ref("Vpc"),
        ServiceName={"Fn::Sub": "com.amazonaws.${AWS::Region}.s3"},
        RouteTableIds=[_ref("PublicRoutes"), _ref("PrivateRoutes")],
    )
    return gateway


def _groups(file: ClusterFile) -> Template:
    """Machines reach each other by every protocol, in and out, as EFA needs; ssh is for named addresses."""
    everything = {"IpProtocol": "-1", "CidrIp": _ANYWHERE}
    own = {"GroupId": _ref("NodesGroup"), "IpProtocol": "-1"}
    ssh = [
        {"IpProtocol": "tcp", "FromPort": _SSH, "ToPort": _SSH, "CidrIp": address}
        for address in file.head.allow_ssh_from
    ]
    return {
        "NodesGroup": _resource(
            "SecurityGroup",
            GroupDescription=f"All machines of {file.name}, with each other",
            VpcId=_ref("Vpc"),
            SecurityGroupEgress=[everything],
            Tags=_tags(file, "nodes"),
        ),
        "NodesIn": _resource("SecurityGroupIngress", SourceSecurityGroupId=_ref("NodesGroup"), **own),
        "NodesOut": _resource("SecurityGroupEgress", DestinationSecurityGroupId=_ref("NodesGroup"), **own),
        "SshGroup": _resource(
            "SecurityGroup",
            GroupDescription=f"ssh to the head node of {file.name}",
            VpcId=_ref("Vpc"),
            SecurityGroupIngress=ssh,
            SecurityGroupEgress=[everything],
            Tags=_tags(file, "ssh"),
        ),
    }
