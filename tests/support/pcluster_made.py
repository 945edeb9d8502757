"""In moto, what the real ParallelCluster looks for of a cluster that stands: its own stack never gets there.

The stack's parameters and version, the configuration in the bucket, the head node, and the fleet's status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from kitae.cluster.aws import Account

VERSION = "3.16.1"
_FOLDER = "parallelcluster/3.16.1/clusters/llama-0123456789abcdef"


def stand(account: Account, config: Mapping[str, Any], *, fleet: str = "RUNNING") -> None:
    """A cluster `llama` with this configuration."""
    name, bucket = "llama", config["CustomS3Bucket"]
    s3 = account.client("s3")
    key = f"{_FOLDER}/configs/cluster-config.yaml"
    put = s3.put_object(Bucket=bucket, Key=key, Body=yaml.safe_dump(dict(config)).encode())
    parameters = {
        "ResourcesS3Bucket": bucket,
        "ArtifactS3RootDirectory": _FOLDER,
        "ConfigVersion": put["VersionId"],
        "Scheduler": "slurm",
        "ClusterUser": "ubuntu",
        "OfficialAmi": "ami-0123456789abcdef0",
    }
    body = {
        "Parameters": {key: {"Type": "String"} for key in parameters},
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
    }
    tags = [{"Key": "parallelcluster:version", "Value": VERSION}, *config["Tags"]]
    tags.append({"Key": "parallelcluster:cluster-name", "Value": name})
    account.client("cloudformation").create_stack(
        StackName=name,
        TemplateBody=json.dumps(body),
        Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in parameters.items()],
        Tags=tags,
    )
    _head(account, config, tags)
    _status(account, name, fleet)


def _head(account: Account, config: Mapping[str, Any], tags: list[dict[str, str]]) -> None:
    ec2, head = account.client("ec2"), config["HeadNode"]
    ec2.run_instances(
        ImageId="ami-0123456789abcdef0",
        InstanceType=head["InstanceType"],
        SubnetId=head["Networking"]["SubnetId"],
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[
            {
                "ResourceType": "instance",
                "Tags": [
                    *tags,
                    {"Key": "parallelcluster:node-type", "Value": "HeadNode"},
                    {"Key": "parallelcluster:attributes", "Value": f"ubuntu2204, slurm, {VERSION}, x86_64"},
                ],
            }
        ],
    )


def _status(account: Account, name: str, fleet: str) -> None:
    table = f"parallelcluster-slurm-{name}"
    dynamo = account.client("dynamodb")
    dynamo.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "Id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "Id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    data = {"status": {"S": fleet}, "lastStatusUpdatedTime": {"S": "2026-12-01T00:00:00.000Z"}}
    dynamo.put_item(TableName=table, Item={"Id": {"S": "COMPUTE_FLEET"}, "Data": {"M": data}})
