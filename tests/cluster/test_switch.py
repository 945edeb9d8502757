"""The dead man's switch: its stack, and its state machine really run in moto until nothing is left."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone

import pytest

from kitae.cluster.aws import Account
from kitae.cluster.policy import Scope
from kitae.cluster.stacks import delete_stack, find_stack, make_stack
from kitae.cluster.switch import one_pass, switch_template

UNTIL = datetime(2026, 12, 1, 6, 30, tzinfo=timezone.utc)
SCOPE = Scope("llama", "us-west-2", "123456789012")
BUCKET = "kitae-llama-123456789012-us-west-2"
EMPTY = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}


def quiet(text: str) -> None:
    pass


@pytest.fixture
def account(moto) -> Account:
    return Account("us-west-2")


def run_pass(account: Account, number: int) -> list[str]:
    """States that one pass went through."""
    client = account.client("stepfunctions")
    role = "arn:aws:iam::123456789012:role/any"
    machine = client.create_state_machine(
        name=f"pass-{number}", definition=json.dumps(one_pass(SCOPE)), roleArn=role
    )["stateMachineArn"]
    run = client.start_execution(stateMachineArn=machine, name=f"run-{number}", input="{}")["executionArn"]
    end = time.monotonic() + 30
    while (found := client.describe_execution(executionArn=run))["status"] == "RUNNING":
        assert time.monotonic() < end
        time.sleep(0.02)
    assert found["status"] == "SUCCEEDED", (found["error"], found["cause"])
    events = client.get_execution_history(executionArn=run)["events"]
    return [one["stateEnteredEventDetails"]["name"] for one in events if "stateEnteredEventDetails" in one]


def start_instances(account: Account, count: int) -> None:
    ec2 = account.client("ec2")
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "parallelcluster:cluster-name", "Value": "llama"}]}]
    image = ec2.describe_images()["Images"][0]["ImageId"]
    ec2.run_instances(
        ImageId=image, MinCount=count, MaxCount=count, InstanceType="trn1.2xlarge", TagSpecifications=tags
    )


def alive(account: Account) -> int:
    found = account.client("ec2").describe_instances()["Reservations"]
    return sum(one["State"]["Name"] != "terminated" for group in found for one in group["Instances"])


def make_bucket(account: Account, contents: tuple[bytes, ...] = (b"old", b"new")) -> None:
    s3 = account.client("s3")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    for content in contents:
        s3.put_object(Bucket=BUCKET, Key="bootstrap/head.sh", Body=content)


def test_its_stack_is_made_with_a_schedule_that_begins_at_the_end(account):
    stack = make_stack(
        account, "kitae-llama-switch", switch_template(SCOPE, UNTIL, {"kitae:cluster": "llama"}), {}, quiet
    )
    assert stack.outputs["Until"] == "2026-12-01T06:30:00Z"
    schedule = account.client("scheduler").get_schedule(Name="kitae-llama-switch")
    assert schedule["ScheduleExpression"] == "rate(15 minutes)"
    assert schedule["StartDate"].astimezone(timezone.utc) == UNTIL
    assert schedule["Target"]["Arn"] == stack.outputs["Machine"]
    assert schedule["Target"]["RoleArn"].endswith("role/kitae-llama-switch-schedule-us-west-2")
    delete_stack(account, "kitae-llama-switch", quiet)
    assert find_stack(account, "kitae-llama-switch") is None
    assert account.client("scheduler").list_schedules()["Schedules"] == []


def test_one_pass_ends_everything(account, moto):
    """Row 3: instances first, whatever becomes of the stacks; then stacks, bucket and schedule."""
    moto.run_state_machines()
    start_instances(account, 7)
    for name in ("llama", "kitae-llama-network"):
        make_stack(account, name, EMPTY, {}, quiet)
    make_bucket(account)
    moto.run_state_machines()
    states = run_pass(account, 1)
    assert states[-2:] == ["Rest", "Done"]
    assert alive(account) == 0
    assert find_stack(account, "llama") is None
    assert find_stack(account, "kitae-llama-network") is None
    assert account.client("s3").list_buckets()["Buckets"] == []


def test_a_network_is_left_alone_until_its_cluster_is_gone_and_the_next_pass_makes_up(account, moto):
    moto.run_state_machines()
    start_instances(account, 1)
    for name in ("llama", "kitae-llama-network"):
        make_stack(account, name, EMPTY, {}, quiet)
    moto.refuse("cloudformation:DeleteStack", 1)
    states = run_pass(account, 2)
    assert "Delete network" not in states
    assert alive(account) == 0
    assert find_stack(account, "kitae-llama-network") is not None
    assert run_pass(account, 3)[-2:] == ["Rest", "Done"]
    assert find_stack(account, "kitae-llama-network") is None


def test_an_empty_bucket_goes_too(account, moto):
    moto.run_state_machines()
    make_bucket(account, ())
    assert run_pass(account, 5)[-3:] == ["Delete bucket", "Rest", "Done"]
    assert account.client("s3").list_buckets()["Buckets"] == []


def test_where_nothing_is_left_it_puts_itself_to_rest(account, moto):
    moto.run_state_machines()
    assert run_pass(account, 4)[-2:] == ["Rest", "Done"]
    assert "ec2:TerminateInstances" not in moto.calls()
