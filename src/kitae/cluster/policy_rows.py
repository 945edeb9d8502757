"""Rows of the policy: what may be done, to what. `{name}` and the like are filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_HERE: Mapping[str, Any] = {"StringEquals": {"aws:RequestedRegion": "{region}"}}
_OWN: Mapping[str, Any] = {
    "StringEquals": {
        "aws:RequestedRegion": "{region}",
        "aws:ResourceTag/parallelcluster:cluster-name": "{name}",
    }
}
"""Held to what ParallelCluster tags as this cluster's."""


@dataclass(frozen=True)
class Row:
    """One statement."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...] = ("*",)
    condition: Mapping[str, Any] = field(default_factory=dict)
    ends: bool = True
    """Whether its deleting and looking actions are needed to take a cluster down."""


def _of(service: str, words: str) -> tuple[str, ...]:
    return tuple(f"{service}:{word}" for word in words.split())


def _arn(service: str, rest: str) -> str:
    return f"arn:aws:{service}:{{region}}:{{account}}:{rest}"


# Those of ParallelCluster's functions lie beside the cluster's own, by names that CloudFormation makes.
_ROLES = (
    "arn:aws:iam::{account}:role/parallelcluster/{name}/*",
    "arn:aws:iam::{account}:role/parallelcluster/{short}*",
    "arn:aws:iam::{account}:role/{switch}-*",
)
_MANAGED = (
    "arn:aws:iam::aws:policy/CloudWatchAgentServerPolicy",
    "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore",
    "arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole",
    "arn:aws:iam::{account}:policy/parallelcluster*",
)
_STACKS = (
    _arn("cloudformation", "stack/{name}/*"),
    _arn("cloudformation", "stack/{name}-*/*"),
    _arn("cloudformation", "stack/kitae-{name}-*/*"),
)

ROWS = (
    Row(
        "Look",
        (
            *_of("ec2", "Describe* GetInstanceTypesFromInstanceRequirements"),
            *_of("cloudformation", "ListStacks DescribeStacks ValidateTemplate"),
            *_of("fsx", "DescribeFileSystems DescribeDataRepositoryAssociations DescribeBackups"),
            *_of("elasticloadbalancing", "DescribeLoadBalancers DescribeTags"),
            *_of("logs", "DescribeLogGroups DescribeMetricFilters"),
            *_of("cloudwatch", "DescribeAlarms ListDashboards GetDashboard"),
            *_of("servicequotas", "GetServiceQuota GetAWSDefaultServiceQuota ListServiceQuotas"),
            *_of("servicequotas", "ListRequestedServiceQuotaChangeHistoryByQuota"),
            *_of("scheduler", "ListSchedules"),
            *_of("states", "ListStateMachines"),
            *_of("resource-groups", "ListGroupResources GetGroupConfiguration"),
        ),
        condition=_HERE,
    ),
    # Services without a region, or with one of their own.
    Row(
        "LookEverywhere",
        (
            "pricing:GetProducts",
            "sts:GetCallerIdentity",
            "s3:ListAllMyBuckets",
            "iam:SimulatePrincipalPolicy",
            # Clusters are listed over all regions.
            "ec2:DescribeRegions",
            "cloudformation:DescribeStacks",
        ),
    ),
    Row("AskForQuota", ("servicequotas:RequestServiceQuotaIncrease",), condition=_HERE, ends=False),
    Row(
        "Machines",
        (
            *_of("ec2", "RunInstances CreateFleet"),
            *_of(
                "ec2",
                "CreateLaunchTemplate CreateLaunchTemplateVersion ModifyLaunchTemplate DeleteLaunchTemplate",
            ),
            *_of("ec2", "CreatePlacementGroup DeletePlacementGroup CreateTags DeleteTags"),
            *_of(
                "ec2",
                "CreateVolume ModifyVolume ModifyVolumeAttribute DeleteVolume CreateSnapshot DeleteSnapshot",
            ),
            *_of("ec2", "CreateNetworkInterface AttachNetworkInterface DeleteNetworkInterface"),
            *_of("ec2", "ModifyNetworkInterfaceAttribute"),
        ),
        condition=_HERE,
    ),
    Row(
        "EndMachines",
        (
            *_of("ec2", "TerminateInstances StartInstances StopInstances"),
            "elasticloadbalancing:DeleteLoadBalancer",
        ),
        condition=_OWN,
    ),
    Row(
        "Network",
        (
            *_of(
                "ec2",
                "CreateVpc DeleteVpc ModifyVpcAttribute CreateSubnet DeleteSubnet ModifySubnetAttribute",
            ),
            *_of(
                "ec2",
                "CreateInternetGateway AttachInternetGateway DetachInternetGateway DeleteInternetGateway",
            ),
            *_of("ec2", "AllocateAddress AssociateAddress DisassociateAddress ReleaseAddress"),
            *_of(
                "ec2",
                "CreateNatGateway DeleteNatGateway CreateVpcEndpoint ModifyVpcEndpoint DeleteVpcEndpoints",
            ),
            *_of("ec2", "CreateRouteTable DeleteRouteTable CreateRoute ReplaceRoute DeleteRoute"),
            *_of("ec2", "AssociateRouteTable DisassociateRouteTable CreateSecurityGroup DeleteSecurityGroup"),
            *_of("ec2", "AuthorizeSecurityGroupIngress AuthorizeSecurityGroupEgress"),
            *_of("ec2", "RevokeSecurityGroupIngress RevokeSecurityGroupEgress"),
        ),
        condition=_HERE,
    ),
    Row(
        "Stacks",
        (
            *_of(
                "cloudformation", "CreateStack UpdateStack DeleteStack GetTemplate TagResource UntagResource"
            ),
            *_of("cloudformation", "DescribeStackEvents DescribeStackResource DescribeStackResources"),
            *_of("cloudformation", "ListStackResources UpdateTerminationProtection"),
        ),
        _STACKS,
    ),
    Row(
        "Roles",
        (
            *_of("iam", "CreateRole DeleteRole TagRole UntagRole PutRolePolicy DeleteRolePolicy GetRole"),
            *_of("iam", "GetRolePolicy ListRolePolicies ListAttachedRolePolicies"),
        ),
        _ROLES,
    ),
    Row(
        "RolesOfOthers",
        _of("iam", "GetRole GetRolePolicy GetPolicy GetInstanceProfile"),
        (
            "arn:aws:iam::{account}:role/*",
            "arn:aws:iam::{account}:policy/*",
            "arn:aws:iam::aws:policy/*",
            "arn:aws:iam::{account}:instance-profile/*",
        ),
    ),
    Row(
        "ManagedPolicies",
        _of("iam", "AttachRolePolicy DetachRolePolicy"),
        _ROLES,
        {"ArnLike": {"iam:PolicyARN": _MANAGED}},
    ),
    Row(
        "Profiles",
        (
            *_of("iam", "CreateInstanceProfile DeleteInstanceProfile"),
            *_of("iam", "AddRoleToInstanceProfile RemoveRoleFromInstanceProfile"),
        ),
        ("arn:aws:iam::{account}:instance-profile/parallelcluster/{name}/*",),
    ),
    Row(
        "PassRoles",
        ("iam:PassRole",),
        _ROLES,
        {
            "StringEquals": {
                "iam:PassedToService": (
                    "lambda.amazonaws.com",
                    "ec2.amazonaws.com",
                    "states.amazonaws.com",
                    "scheduler.amazonaws.com",
                )
            }
        },
        ends=False,
    ),
    Row(
        "ServiceRoles",
        ("iam:CreateServiceLinkedRole",),
        ("arn:aws:iam::{account}:role/aws-service-role/*",),
        {
            "StringEquals": {
                "iam:AWSServiceName": (
                    "fsx.amazonaws.com",
                    "s3.data-source.lustre.fsx.amazonaws.com",
                    "spot.amazonaws.com",
                )
            }
        },
        ends=False,
    ),
    Row(
        "Functions",
        (
            *_of(
                "lambda", "CreateFunction DeleteFunction GetFunction GetFunctionConfiguration InvokeFunction"
            ),
            *_of("lambda", "AddPermission RemovePermission UpdateFunctionConfiguration ListTags TagResource"),
        ),
        (_arn("lambda", "function:pcluster-*"), _arn("lambda", "function:parallelcluster-*")),
    ),
    Row(
        "Table",
        (
            *_of("dynamodb", "CreateTable DeleteTable DescribeTable GetItem PutItem UpdateItem Query"),
            *_of("dynamodb", "TagResource UntagResource ListTagsOfResource"),
        ),
        (
            _arn("dynamodb", "table/parallelcluster-slurm-{name}"),
            _arn("dynamodb", "table/parallelcluster-{name}"),
        ),
    ),
    Row(
        "Names",
        (
            *_of(
                "route53",
                "CreateHostedZone DeleteHostedZone GetHostedZone GetChange ChangeResourceRecordSets",
            ),
            *_of(
                "route53",
                "ChangeTagsForResource ListHostedZones ListResourceRecordSets ListQueryLoggingConfigs",
            ),
        ),
    ),
    Row(
        "Storage",
        (
            *_of("fsx", "CreateFileSystem DeleteFileSystem UpdateFileSystem TagResource ListTagsForResource"),
            *_of("fsx", "CreateDataRepositoryAssociation DeleteDataRepositoryAssociation"),
        ),
        (_arn("fsx", "file-system/*"), _arn("fsx", "association/*"), _arn("fsx", "backup/*")),
    ),
    Row(
        "Bucket",
        (
            *_of(
                "s3",
                "CreateBucket DeleteBucket ListBucket ListBucketVersions GetBucketLocation GetBucketTagging",
            ),
            *_of("s3", "PutBucketTagging PutBucketVersioning GetBucketVersioning PutEncryptionConfiguration"),
            *_of(
                "s3", "GetEncryptionConfiguration PutBucketPublicAccessBlock PutBucketPolicy GetBucketPolicy"
            ),
            *_of("s3", "GetObject GetObjectVersion PutObject DeleteObject DeleteObjectVersion"),
        ),
        ("arn:aws:s3:::{bucket}", "arn:aws:s3:::{bucket}/*"),
    ),
    Row(
        "Releases",
        _of("s3", "GetObject ListBucket"),
        ("arn:aws:s3:::{region}-aws-parallelcluster", "arn:aws:s3:::{region}-aws-parallelcluster/*"),
        ends=False,
    ),
    Row(
        "Logs",
        (
            *_of("logs", "CreateLogGroup DeleteLogGroup PutRetentionPolicy TagResource UntagResource"),
            *_of(
                "logs", "PutMetricFilter DeleteMetricFilter DescribeLogStreams GetLogEvents FilterLogEvents"
            ),
        ),
        (
            _arn("logs", "log-group:/aws/parallelcluster/{name}-*"),
            _arn("logs", "log-group:/aws/lambda/pcluster-*"),
        ),
    ),
    Row(
        "Alarms",
        _of("cloudwatch", "PutMetricAlarm PutCompositeAlarm DeleteAlarms"),
        (_arn("cloudwatch", "alarm:{name}*"),),
    ),
    Row(
        "Save",
        ("ssm:SendCommand",),
        ("arn:aws:ssm:{region}::document/AWS-RunShellScript", _arn("ec2", "instance/*")),
        _HERE,
        ends=False,
    ),
    # It is of no resource.
    Row("Saved", ("ssm:GetCommandInvocation",), condition=_HERE, ends=False),
    Row(
        "Switch",
        (
            *_of("states", "CreateStateMachine UpdateStateMachine DeleteStateMachine"),
            *_of("states", "DescribeStateMachine TagResource"),
            *_of("states", "ListTagsForResource StartExecution"),
        ),
        (_arn("states", "stateMachine:{switch}"),),
    ),
    Row(
        "Schedule",
        _of("scheduler", "CreateSchedule GetSchedule UpdateSchedule DeleteSchedule"),
        (_arn("scheduler", "schedule/default/{switch}"),),
    ),
)
