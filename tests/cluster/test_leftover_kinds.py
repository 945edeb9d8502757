"""Every kind of thing that may bill is found, priced, and goes by its command; also of clusters of others."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from kitae.cli.main import main
from kitae.cluster.aws import Account
from kitae.cluster.kinds import KINDS
from kitae.cluster.leftovers import scan

TAG = "parallelcluster:cluster-name"
ROWS = [{"Key": TAG, "Value": "other"}]


def spec(kind: str) -> list[dict[str, object]]:
    return [{"ResourceType": kind, "Tags": ROWS}]


def image(account: Account) -> str:
    found: str = account.client("ec2").describe_images()["Images"][0]["ImageId"]
    return found


def subnet(account: Account) -> str:
    found: str = account.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    return found


def instance(account: Account) -> None:
    account.client("ec2").run_instances(
        ImageId=image(account),
        MinCount=1,
        MaxCount=1,
        InstanceType="trn1.32xlarge",
        TagSpecifications=spec("instance"),
    )


def volume(account: Account) -> str:
    ec2 = account.client("ec2")
    made = ec2.create_volume(Size=100, AvailabilityZone="us-west-2d", TagSpecifications=spec("volume"))
    return str(made["VolumeId"])


def snapshot(account: Account) -> None:
    ec2, own = account.client("ec2"), volume(account)
    ec2.create_snapshot(VolumeId=own, TagSpecifications=spec("snapshot"))
    ec2.delete_volume(VolumeId=own)


def file_system(account: Account) -> None:
    account.client("fsx").create_file_system(
        FileSystemType="LUSTRE", StorageCapacity=1200, SubnetIds=[subnet(account)], Tags=ROWS
    )


def gateway(account: Account) -> None:
    account.client("ec2").create_nat_gateway(
        SubnetId=subnet(account), ConnectivityType="private", TagSpecifications=spec("natgateway")
    )


def address(account: Account) -> None:
    account.client("ec2").allocate_address(Domain="vpc", TagSpecifications=spec("elastic-ip"))


def balancer(account: Account) -> None:
    subnets = [one["SubnetId"] for one in account.client("ec2").describe_subnets()["Subnets"][:2]]
    account.client("elbv2").create_load_balancer(Name="login", Subnets=subnets, Type="network", Tags=ROWS)


def bucket(account: Account) -> None:
    name = "kitae-other-123456789012-us-west-2"
    where = {"LocationConstraint": "us-west-2"}
    account.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration=where)
    account.client("s3").put_object(Bucket=name, Key="a", Body=b"a")


def log_group(account: Account) -> None:
    account.client("logs").create_log_group(logGroupName="/aws/parallelcluster/other-202612010200")


def launch_template(account: Account) -> None:
    account.client("ec2").create_launch_template(
        LaunchTemplateName="other-q-t",
        LaunchTemplateData={"InstanceType": "trn1.32xlarge", "TagSpecifications": spec("instance")},
    )


def stack(account: Account) -> None:
    body = json.dumps({"Resources": {"T": {"Type": "AWS::SNS::Topic"}}})
    account.client("cloudformation").create_stack(StackName="other", TemplateBody=body, Tags=ROWS)


def schedule(account: Account) -> None:
    account.client("scheduler").create_schedule(
        Name="kitae-other-switch",
        ScheduleExpression="rate(15 minutes)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": "arn:aws:states:us-west-2:1:stateMachine:x", "RoleArn": "arn:aws:iam::1:role/x"},
    )


def zone(account: Account, region: str = "us-west-2") -> None:
    network = account.client("ec2").describe_vpcs()["Vpcs"][0]["VpcId"]
    client = account.client("route53")
    made = client.create_hosted_zone(
        Name="other.pcluster.",
        CallerReference=region,
        VPC={"VPCRegion": region, "VPCId": network},
        HostedZoneConfig={"PrivateZone": True},
    )
    record = {
        "Name": "q-dy-t-1.other.pcluster.",
        "Type": "A",
        "TTL": 120,
        "ResourceRecords": [{"Value": "10.60.0.9"}],
    }
    client.change_resource_record_sets(
        HostedZoneId=made["HostedZone"]["Id"],
        ChangeBatch={"Changes": [{"Action": "CREATE", "ResourceRecordSet": record}]},
    )


# How one is made, and what it costs an hour; None: not known in the catalogue.
MADE: dict[str, tuple[Callable[[Account], object], str]] = {
    "instance": (instance, "$21.50 an hour"),
    "volume": (volume, "price unknown"),
    "snapshot": (snapshot, "price unknown"),
    "file system": (file_system, "$0.23 an hour"),
    "NAT gateway": (gateway, "$0.05 an hour"),
    "address": (address, "price unknown"),
    "load balancer": (balancer, "price unknown"),
    "hosted zone": (zone, "price unknown"),
    "bucket": (bucket, "$0.00 an hour"),
    "log group": (log_group, "$0.00 an hour"),
    "launch template": (launch_template, "$0.00 an hour"),
    "stack": (stack, "$0.00 an hour"),
    "schedule": (schedule, "$0.00 an hour"),
}


@pytest.fixture
def account(engine) -> Account:
    return Account("us-west-2")


def test_every_kind_is_tried():
    assert set(MADE) == {kind.name for kind in KINDS}


@pytest.mark.parametrize("kind", MADE)
def test_one_is_found_priced_and_goes(kind, account, capsys):
    """Of a cluster that kitae did not make: by ParallelCluster's tag, or by its name."""
    make, price = MADE[kind]
    make(account)
    [found] = [one for one in scan(account, "other") if not one.thing.going]
    assert found.kind.name == kind
    assert price in found.line()
    assert found.command.startswith(("aws --region us-west-2 ", "aws route53 "))
    assert found.thing.id in found.command
    assert [one.kind.name for one in scan(account, None)] == [kind]
    assert scan(account, "another") == []
    assert main(["cluster", "leftovers", "--name", "other"]) == 8
    assert found.command in capsys.readouterr().out
    found.kind.remove(account, found.thing.id)
    assert [one for one in scan(account, "other") if not one.thing.going] == []


def test_all_at_once_are_taken_down_by_name(account, capsys):
    """`down` of a cluster that kitae did not make."""
    for make, _ in MADE.values():
        make(account)
    assert main(["cluster", "down", "other", "--region", "us-west-2", "--yes"]) == 0
    assert "nothing of other is left in us-west-2" in capsys.readouterr().out
    assert scan(account, None) == []


def test_a_zone_of_a_cluster_of_the_same_name_in_another_region_is_left_alone(account):
    """Zones are of no region, but their networks are."""
    zone(account, "us-east-1")
    assert scan(account, None) == []
    assert main(["cluster", "down", "other", "--region", "us-west-2", "--yes"]) == 0
    assert len(account.client("route53").list_hosted_zones()["HostedZones"]) == 1


def test_the_bucket_that_parallelcluster_makes_for_all_its_clusters_is_told_but_is_of_none(account, capsys):
    name = "parallelcluster-0123456789abcdef-v1-do-not-delete"
    where = {"LocationConstraint": "us-west-2"}
    account.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration=where)
    account.client("s3").create_bucket(Bucket="parallelcluster-results", CreateBucketConfiguration=where)
    assert [one.thing.id for one in scan(account, None)] == [name]
    assert scan(account, "other") == []
