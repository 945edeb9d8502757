"""What CloudFormation does in somebody's name for a template: it has no permissions of its own.

By type of resource, after the permissions that each type's handlers name
(https://docs.aws.amazon.com/cloudformation/, `handlers.*.permissions` of the types' schemas).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from iam_evaluator import Request
from moto_server import ACCOUNT, REGION

Template = Mapping[str, Any]
_EC2 = {
    "VPC": "CreateVpc ModifyVpcAttribute DescribeVpcs DeleteVpc CreateTags",
    "Subnet": "CreateSubnet ModifySubnetAttribute DescribeSubnets DeleteSubnet CreateTags",
    "InternetGateway": "CreateInternetGateway DescribeInternetGateways DeleteInternetGateway CreateTags",
    "VPCGatewayAttachment": "AttachInternetGateway DetachInternetGateway",
    "EIP": "AllocateAddress DescribeAddresses DisassociateAddress ReleaseAddress CreateTags",
    "NatGateway": "CreateNatGateway DescribeNatGateways DeleteNatGateway CreateTags",
    "RouteTable": "CreateRouteTable DescribeRouteTables DeleteRouteTable CreateTags",
    "Route": "CreateRoute DeleteRoute",
    "SubnetRouteTableAssociation": "AssociateRouteTable DisassociateRouteTable",
    "VPCEndpoint": "CreateVpcEndpoint DescribeVpcEndpoints DeleteVpcEndpoints",
    "SecurityGroup": "CreateSecurityGroup DescribeSecurityGroups AuthorizeSecurityGroupIngress "
    "AuthorizeSecurityGroupEgress RevokeSecurityGroupEgress RevokeSecurityGroupIngress DeleteSecurityGroup "
    "CreateTags",
    "SecurityGroupIngress": "AuthorizeSecurityGroupIngress RevokeSecurityGroupIngress",
    "SecurityGroupEgress": "AuthorizeSecurityGroupEgress RevokeSecurityGroupEgress",
    "NetworkInterface": "CreateNetworkInterface DescribeNetworkInterfaces DeleteNetworkInterface CreateTags",
    "LaunchTemplate": "CreateLaunchTemplate CreateLaunchTemplateVersion DescribeLaunchTemplates "
    "DeleteLaunchTemplate CreateTags",
    "PlacementGroup": "CreatePlacementGroup DescribePlacementGroups DeletePlacementGroup CreateTags",
    "Instance": "RunInstances DescribeInstances CreateTags CreateVolume AttachNetworkInterface",
}
# Type: actions, and the resource; names of the template are filled in.
_OTHERS: Mapping[str, tuple[str, str]] = {
    "AWS::IAM::Role": (
        "iam:CreateRole iam:PutRolePolicy iam:DeleteRolePolicy iam:GetRole iam:TagRole iam:DeleteRole "
        "iam:ListRolePolicies iam:ListAttachedRolePolicies iam:GetRolePolicy iam:PassRole",
        "arn:aws:iam::{account}:role{path}{name}",
    ),
    "AWS::IAM::InstanceProfile": (
        "iam:CreateInstanceProfile iam:AddRoleToInstanceProfile iam:RemoveRoleFromInstanceProfile "
        "iam:DeleteInstanceProfile iam:GetInstanceProfile",
        "arn:aws:iam::{account}:instance-profile{path}{name}",
    ),
    "AWS::Lambda::Function": (
        "lambda:CreateFunction lambda:GetFunction lambda:DeleteFunction lambda:InvokeFunction "
        "lambda:TagResource",
        "arn:aws:lambda:{region}:{account}:function:{name}",
    ),
    "AWS::Logs::LogGroup": (
        "logs:CreateLogGroup logs:PutRetentionPolicy logs:TagResource logs:DeleteLogGroup",
        "arn:aws:logs:{region}:{account}:log-group:{name}:*",
    ),
    "AWS::Logs::MetricFilter": (
        "logs:PutMetricFilter logs:DeleteMetricFilter",
        "arn:aws:logs:{region}:{account}:log-group:{name}:*",
    ),
    "AWS::DynamoDB::Table": (
        "dynamodb:CreateTable dynamodb:DescribeTable dynamodb:DeleteTable dynamodb:TagResource "
        "dynamodb:ListTagsOfResource",
        "arn:aws:dynamodb:{region}:{account}:table/{name}",
    ),
    "AWS::CloudWatch::Alarm": (
        "cloudwatch:PutMetricAlarm cloudwatch:DeleteAlarms",
        "arn:aws:cloudwatch:{region}:{account}:alarm:{name}",
    ),
    "AWS::CloudWatch::CompositeAlarm": (
        "cloudwatch:PutCompositeAlarm cloudwatch:DeleteAlarms",
        "arn:aws:cloudwatch:{region}:{account}:alarm:{name}",
    ),
    "AWS::Route53::HostedZone": (
        "route53:CreateHostedZone route53:GetHostedZone route53:DeleteHostedZone "
        "route53:ChangeTagsForResource route53:ListQueryLoggingConfigs",
        "arn:aws:route53:::hostedzone/Z1",
    ),
    "AWS::FSx::FileSystem": (
        "fsx:CreateFileSystem fsx:TagResource fsx:DeleteFileSystem",
        "arn:aws:fsx:{region}:{account}:file-system/fs-1",
    ),
    "AWS::FSx::DataRepositoryAssociation": (
        "fsx:CreateDataRepositoryAssociation fsx:DeleteDataRepositoryAssociation",
        "arn:aws:fsx:{region}:{account}:association/fs-1/dra-1",
    ),
    "AWS::CloudFormation::Stack": (
        "cloudformation:CreateStack cloudformation:DescribeStackEvents cloudformation:DeleteStack",
        "arn:aws:cloudformation:{region}:{account}:stack/{name}/0f1e2d3c",
    ),
    "AWS::StepFunctions::StateMachine": (
        "states:CreateStateMachine states:DescribeStateMachine states:TagResource states:DeleteStateMachine",
        "arn:aws:states:{region}:{account}:stateMachine:{name}",
    ),
    "AWS::Scheduler::Schedule": (
        "scheduler:CreateSchedule scheduler:GetSchedule scheduler:DeleteSchedule",
        "arn:aws:scheduler:{region}:{account}:schedule/default/{name}",
    ),
}
# Of no permission, or of that of what they belong to.
_FREE = (
    "AWS::CloudFormation::WaitCondition",
    "AWS::CloudFormation::WaitConditionHandle",
    "AWS::CloudFormation::CustomResource",
    "AWS::IAM::Policy",
)
_NAME = (
    "RoleName",
    "InstanceProfileName",
    "FunctionName",
    "LogGroupName",
    "TableName",
    "AlarmName",
    "StateMachineName",
    "Name",
)
_SERVICE = {"lambda", "ec2", "states", "scheduler"}


def requests_of(template: Template, stack: str, tags: Mapping[str, str]) -> Iterator[Request]:
    """All that making and deleting a stack asks of AWS. Raises `KeyError` for a type not known here."""
    for logical, resource in template["Resources"].items():
        kind, properties = resource["Type"], resource.get("Properties", {})
        if kind in _FREE:
            continue
        context = {"aws:RequestedRegion": REGION, **{f"aws:ResourceTag/{key}": tags[key] for key in tags}}
        if kind.startswith("AWS::EC2::"):
            for word in _EC2[kind.rpartition(":")[2]].split():
                yield Request(f"ec2:{word}", ("*",), context)
            continue
        actions, form = _OTHERS[kind]
        name = _name(properties, logical, stack)
        arn = form.format(account=ACCOUNT, region=REGION, name=name, path=properties.get("Path", "/"))
        for action in actions.split():
            more = _passed(properties) if action == "iam:PassRole" else {}
            yield Request(action, (arn,), {**context, **more})
        for policy in properties.get("ManagedPolicyArns", ()):
            for action in ("iam:AttachRolePolicy", "iam:DetachRolePolicy"):
                yield Request(action, (arn,), {**context, "iam:PolicyARN": policy})


def _name(properties: Mapping[str, Any], logical: str, stack: str) -> str:
    """A resource's own name, with what only AWS knows left open; else the one that CloudFormation gives."""
    given = next((properties[key] for key in _NAME if key in properties), None)
    if isinstance(given, str):
        return given
    if given is not None:
        words = re.findall(r"'([\w/:.-]*pcluster-[\w-]*)'", str(given))
        return f"{words[0]}0f1e2d3c" if words else "x"
    # A role's has 64 letters at most, of which a long stack's name gets 24.
    head = f"{stack[:24]}-{logical[:24]}" if len(stack) + len(logical) > 50 and _is_role(properties) else ""
    return f"{head or f'{stack}-{logical}'}-1A2B3C4D5E6F"


def _is_role(properties: Mapping[str, Any]) -> bool:
    return "AssumeRolePolicyDocument" in properties


def _passed(properties: Mapping[str, Any]) -> dict[str, str]:
    trusted = re.findall(r"(\w+)\.amazonaws\.com", str(properties.get("AssumeRolePolicyDocument", "")))
    # A service's host is written in parts where the partition is open.
    plain = re.findall(r"'(\w+)\.'", str(properties.get("AssumeRolePolicyDocument", "")))
    service = next(one for one in (*trusted, *plain) if one in _SERVICE)
    return {"iam:PassedToService": f"{service}.amazonaws.com"}
