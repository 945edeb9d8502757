# ruff: noqa: E501 - lines as they were written
"""Row 41: the first real error of nested stacks and of nodes, not what was cancelled because of it."""

from __future__ import annotations

import time

import pytest
from cluster_case import write_cluster
from clustermgtd_logs import boot_loop

from kitae.cli.main import main
from kitae.cluster.aws import Account
from kitae.cluster.reasons import first_failure, node_error, why

ARN = "arn:aws:cloudformation:us-west-2:123456789012:stack"
STACK, SIGNAL = "AWS::CloudFormation::Stack", "AWS::CloudFormation::WaitCondition"
CAPACITY = "We currently do not have sufficient c5.4xlarge capacity in the Availability Zone you requested (us-west-2d)."
TIMED_OUT = "WaitCondition timed out. Received 0 conditions when expecting 1"
INNER = f"{ARN}/llama-ComputeFleetQueues-1ABC/11111111"
GROUP = "/aws/parallelcluster/llama-202612010200"
Row = tuple[str, str, str, str, str]


def events(*rows: Row) -> str:
    """AWS's answer; rows are resource, type, what it is, status, reason, oldest first."""
    members = "".join(
        f"<member><StackId>{ARN}/llama/1</StackId><EventId>{number}</EventId><StackName>llama</StackName>"
        f"<LogicalResourceId>{name}</LogicalResourceId><PhysicalResourceId>{inside}</PhysicalResourceId>"
        f"<ResourceType>{kind}</ResourceType><Timestamp>2026-12-01T02:00:0{number}Z</Timestamp>"
        f"<ResourceStatus>{status}</ResourceStatus><ResourceStatusReason>{reason}</ResourceStatusReason></member>"
        for number, (name, kind, inside, status, reason) in reversed(list(enumerate(rows)))
    )
    return (
        '<DescribeStackEventsResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/">'
        f"<DescribeStackEventsResult><StackEvents>{members}</StackEvents></DescribeStackEventsResult>"
        "<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></DescribeStackEventsResponse>"
    )


def tell(moto, *rows: Row, of: str = "StackName=llama") -> None:
    moto.answer("cloudformation:DescribeStackEvents", events(*rows), of)


def wrote(account: Account, logs: dict[str, list[str]]) -> None:
    """What nodes sent to CloudWatch."""
    client = account.client("logs")
    client.create_log_group(logGroupName=GROUP)
    now = int(time.time() * 1000)
    for number, (log, lines) in enumerate(logs.items()):
        stream = f"ip-10-60-0-9.i-0123456789abcdef0.{log}"
        client.create_log_stream(logGroupName=GROUP, logStreamName=stream)
        told = [
            {"timestamp": now + 1000 * number + place, "message": line} for place, line in enumerate(lines)
        ]
        client.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=told)


@pytest.fixture
def account(engine) -> Account:
    return Account("us-west-2")


CANCELLED = ("FsxFile", "AWS::FSx::FileSystem", "fs-1", "CREATE_FAILED", "Resource creation cancelled")
EMBEDDED = (
    "ComputeFleetQueues",
    STACK,
    INNER,
    "CREATE_FAILED",
    f"Embedded stack {INNER} was not successfully created: The following resource(s) failed to create: [Queue]",
)
OUTER = (
    "llama",
    STACK,
    f"{ARN}/llama/1",
    "ROLLBACK_IN_PROGRESS",
    "The following resource(s) failed to create",
)


def test_the_first_that_failed_by_itself_is_told(account, moto):
    head = ("HeadNode", "AWS::EC2::Instance", "i-1", "CREATE_FAILED", CAPACITY)
    tell(moto, CANCELLED, head, ("Late", "AWS::EC2::Volume", "v", "CREATE_FAILED", "later"), OUTER)
    found = first_failure(account, "llama")
    assert (found.resource, found.reason) == ("HeadNode", CAPACITY)
    assert why(account, "llama") == (
        f"HeadNode (AWS::EC2::Instance): {CAPACITY}; AWS has not enough c5.4xlarge free in us-west-2d now; take "
        "another zone, a reservation or a capacity block, or try again later"
    )


def test_it_is_looked_for_in_nested_stacks(account, moto):
    inside = ("QueueTemplate", "AWS::EC2::LaunchTemplate", "lt-1", "CREATE_FAILED", "You are not authorized")
    tell(moto, CANCELLED, EMBEDDED, OUTER)
    tell(moto, inside, of="StackName=arn")
    assert first_failure(account, "llama").line() == (
        "QueueTemplate (AWS::EC2::LaunchTemplate): You are not authorized"
    )


def test_a_stack_that_names_itself_ends(account, moto):
    tell(
        moto,
        ("llama", STACK, "llama-again", "CREATE_FAILED", "Embedded stack x was not successfully created"),
    )
    moto.answer(
        "cloudformation:DescribeStackEvents",
        events(("again", STACK, "llama-again", "CREATE_FAILED", "a reason of its own")),
        "llama-again",
    )
    assert first_failure(account, "llama").reason == "a reason of its own"


@pytest.mark.parametrize(
    ("logs", "words"),
    [
        (
            {
                "chef-client": ["INFO: fine"],
                "cloud-init-output": ["E: Unable to locate package aws-neuronx-dkms"],
            },
            "a package of the Neuron SDK is not in its repository for this system",
        ),
        (
            {"clustermgtd": boot_loop("train", 2, 3, 10)},
            "machines start and end again before they join; a node's kitae-bootstrap.log",
        ),
        (
            {"chef-client": ["[2026] FATAL: Mixlib::ShellOut::ShellCommandFailed: x"]},
            "chef-client: [2026] FATAL",
        ),
        ({"slurmctld": ["error: nothing of it"]}, "the head node did not report in time"),
    ],
)
def test_a_head_node_that_does_not_report_is_asked_what_it_wrote(logs, words, account, moto):
    tell(moto, ("HeadNodeWaitCondition", SIGNAL, "w", "CREATE_FAILED", TIMED_OUT), OUTER)
    wrote(account, logs)
    assert TIMED_OUT in why(account, "llama")
    assert words in why(account, "llama")


def test_without_logs_and_without_failures_nothing_is_told(account, moto):
    assert node_error(account, "llama") is None
    tell(moto, ("Head", "AWS::EC2::Instance", "i-1", "CREATE_COMPLETE", "fine"))
    assert why(account, "llama") == ""


def test_up_tells_it_with_the_cost_so_far(engine, moto, tmp_path, capsys):
    account = Account("us-west-2")
    engine.play(create_fails="WaitCondition timed out")
    tell(moto, ("HeadNodeWaitCondition", SIGNAL, "w", "CREATE_FAILED", TIMED_OUT), of="StackName=llama&")
    tell(moto, ("HeadNodeWaitCondition", SIGNAL, "w", "CREATE_FAILED", TIMED_OUT), of="StackName=llama")
    wrote(account, {"cloud-init-output": ["No space left on device"]})
    assert main(["cluster", "up", str(write_cluster(tmp_path)), "--yes"]) == 8
    said = capsys.readouterr().err
    assert "llama could not be made (CREATE_FAILED): HeadNodeWaitCondition (AWS::CloudFormation::" in said
    assert "a disk is full; give the node a larger disk_gb (cloud-init-output: No space left" in said
    assert "it cost about $0.00 so far" in said
