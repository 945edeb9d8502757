"""`kitae cluster list`: every cluster of every region, by tags alone."""

from __future__ import annotations

import json

import boto3
import pytest

from kitae.cli.main import main
from kitae.cluster.aws import Account
from kitae.cluster.listing import clusters_of, regions_of

BODY = json.dumps({"Resources": {"T": {"Type": "AWS::SNS::Topic"}}})
SWITCH = json.dumps(
    {
        "Resources": {"T": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {"Until": {"Value": "2026-12-24T18:00:00Z"}},
    }
)


def stack(region: str, name: str, body: str = BODY, **tags: str) -> None:
    listed = [{"Key": key.replace("_", ":"), "Value": value} for key, value in tags.items()]
    boto3.client("cloudformation", region_name=region).create_stack(
        StackName=name, TemplateBody=body, Tags=listed
    )


def machine(region: str, cluster: str) -> None:
    ec2 = boto3.client("ec2", region_name=region)
    tags = [{"Key": "parallelcluster:cluster-name", "Value": cluster}]
    ec2.run_instances(
        ImageId=ec2.describe_images()["Images"][0]["ImageId"],
        MinCount=1,
        MaxCount=1,
        InstanceType="trn1.32xlarge",
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )


@pytest.fixture
def several(moto) -> None:
    """One of kitae in one region, one of ParallelCluster's and what is left of one in another."""
    stack("us-west-2", "kitae-llama-switch", SWITCH, kitae_cluster="llama")
    stack("us-west-2", "llama", kitae_cluster="llama")
    machine("us-west-2", "llama")
    stack("us-east-1", "other", **{"parallelcluster:cluster-name": "other"})
    stack("us-east-1", "kitae-gone-network", kitae_cluster="gone")
    stack("us-east-1", "something-else")


def test_all_regions_are_looked_at(several, capsys):
    assert main(["cluster", "list"]) == 0
    said = capsys.readouterr()
    rows = [line.split() for line in said.out.splitlines()]
    assert rows[0][:3] == ["cluster", "region", "state"]
    assert [row[:3] for row in rows[1:]] == [
        ["gone", "us-east-1", "no"],
        ["other", "us-east-1", "stands"],
        ["llama", "us-west-2", "stands"],
    ]
    assert rows[-1][-3:] == ["$21.50", "2026-12-24T18:00:00Z", "kitae"]
    assert rows[2][-2:] == ["never", "ParallelCluster"]


def test_one_region_as_json(several, capsys):
    assert main(["cluster", "list", "--region", "us-west-2", "--json"]) == 0
    [found] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found["name"] == "llama"
    assert found["usd_an_hour"] == "21.50"
    assert found["machines"] == 1
    assert found["until"] == "2026-12-24T18:00:00Z"


def test_nothing_is_said_where_there_is_nothing(moto, capsys):
    assert main(["cluster", "list", "--region", "us-west-2"]) == 0
    assert "there is no cluster in us-west-2" in capsys.readouterr().out


def test_regions_that_refuse_are_told_and_the_others_are_listed(several, moto):
    moto.refuse("cloudformation:DescribeStacks", 1)
    said: list[str] = []
    found = clusters_of(Account, ["us-west-2", "us-east-1"], said.append)
    assert len(said) == 1
    assert "was not looked at" in said[0]
    assert found


def test_where_every_region_refuses_it_is_an_error(moto, capsys):
    moto.refuse("cloudformation:DescribeStacks", 9)
    assert main(["cluster", "list", "--region", "us-west-2"]) == 8
    assert "is not allowed; kitae cluster policy" in capsys.readouterr().err


def test_the_account_says_which_regions_there_are(moto):
    assert {"us-west-2", "us-east-1"} <= set(regions_of(Account("us-west-2")))
