"""The generated policy, judged as IAM would: enough for a whole life, and for nothing of anybody else's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from cluster_case import GOOD, loaded, write_cluster
from iam_evaluator import Request, denied, refused
from iam_requests import request_of
from iam_stacks import requests_of
from moto_server import Moto

from kitae.cli.main import main
from kitae.cluster.aws import Account
from kitae.cluster.network import network_template
from kitae.cluster.policy import Scope, ending_statements, statements
from kitae.cluster.switch import switch_template

SCOPE = Scope("llama", "us-west-2", "123456789012")
MINE = {"parallelcluster:cluster-name": "llama", "kitae:cluster": "llama"}
# What the stand-in does in the place of CloudFormation, and of nobody who has this policy.
OF_THE_STAND_IN = {"fsx:CreateFileSystem", "fsx:DeleteFileSystem"}


def tags_of(account: Account) -> dict[str, dict[str, str]]:
    """Tags of all machines, by id."""
    found: dict[str, dict[str, str]] = {}
    for one in account.client("ec2").describe_tags()["Tags"]:
        found.setdefault(one["ResourceId"], {})[one["Key"]] = one["Value"]
    return found


def asked(moto: Moto, tags: Mapping[str, Mapping[str, str]]) -> Iterator[Request]:
    for call in moto.requests():
        if call["action"] not in OF_THE_STAND_IN:
            yield request_of(call, tags)


TEXT = GOOD.replace("limits:\n", "save: [{from_folder: /fsx/runs, to: 's3://results/x'}]\nlimits:\n")


def test_every_call_of_a_whole_life_is_allowed(engine, moto, tmp_path):
    """Recorded calls of all verbs, and of the stand-in, each with its resources and conditions."""
    path, account = str(write_cluster(tmp_path, TEXT)), Account("us-west-2")
    for words in (["up", path, "--yes"], ["status", path], ["start", path, "--yes"], ["stop", path, "--yes"]):
        assert main(["cluster", *words]) == 0
    write_cluster(tmp_path, TEXT.replace("max: 4", "max: 8").replace("7/32", "8/32").replace("1100", "2100"))
    for words in (
        ["cost", path],
        ["list", "--region", "us-west-2"],
        ["list"],
        ["extend", path, "--until", "+1 hours", "--yes"],
        ["update", path, "--yes"],
        ["leftovers"],
        ["logs", path],
    ):
        print(words, main(["cluster", *words]))
    tags = tags_of(account)
    assert main(["cluster", "down", path, "--yes"]) == 0
    requests = list(asked(moto, tags))
    assert len({one.action for one in requests}) > 25
    assert "ssm:SendCommand" in {one.action for one in requests}
    assert refused(statements(SCOPE), iter(requests)) == set()


def test_every_call_of_quota_is_allowed(engine, moto, tmp_path):
    main(["cluster", "quota", str(write_cluster(tmp_path))])
    requests = list(asked(moto, {}))
    assert {"servicequotas:GetServiceQuota", "iam:SimulatePrincipalPolicy"} <= {
        one.action for one in requests
    }
    assert refused(statements(SCOPE), iter(requests)) == set()


@pytest.mark.parametrize("name", ["llama", "a-name-of-all-28-letters-abc"])
def test_what_cloudformation_does_for_network_and_switch_is_allowed(name, tmp_path):
    from datetime import datetime, timezone

    scope = Scope(name, "us-west-2", "123456789012")
    file = loaded(tmp_path, f"name={name}").file
    until = datetime(2026, 12, 24, tzinfo=timezone.utc)
    tags = {"parallelcluster:cluster-name": name}
    for template in (network_template(file), switch_template(scope, until, {})):
        assert refused(statements(scope), requests_of(template, "x", tags)) == set()


DELETES = ("Delete", "Terminate", "Remove", "Detach", "Release", "Disassociate", "Revoke")


def test_the_switch_may_take_the_network_away(tmp_path):
    requests = requests_of(network_template(loaded(tmp_path).file), "kitae-llama-network", MINE)
    deletes = [one for one in requests if one.action.partition(":")[2].startswith(DELETES)]
    assert len(deletes) > 12
    assert refused(ending_statements(SCOPE), iter(deletes)) == set()


HERE = {"aws:RequestedRegion": "us-west-2"}
ARN = "arn:aws:{}:us-west-2:123456789012:{}"


@pytest.mark.parametrize(
    "request_",
    [
        Request("ec2:TerminateInstances", (ARN.format("ec2", "instance/i-1"),), HERE),
        Request(
            "ec2:TerminateInstances",
            (ARN.format("ec2", "instance/i-1"),),
            {**HERE, "aws:ResourceTag/parallelcluster:cluster-name": "llama-2"},
        ),
        Request("ec2:RunInstances", (ARN.format("ec2", "instance/*"),), {"aws:RequestedRegion": "us-east-1"}),
        Request("cloudformation:DeleteStack", (ARN.format("cloudformation", "stack/llama2/1"),), HERE),
        Request("cloudformation:DeleteStack", (ARN.format("cloudformation", "stack/production/1"),), HERE),
        Request("iam:CreateRole", ("arn:aws:iam::123456789012:role/admin",), HERE),
        Request("iam:CreateRole", ("arn:aws:iam::123456789012:role/parallelcluster/other/x",), HERE),
        Request("iam:PutRolePolicy", ("arn:aws:iam::123456789012:role/parallelcluster/other-Clean",), HERE),
        Request(
            "iam:AttachRolePolicy",
            ("arn:aws:iam::123456789012:role/parallelcluster/llama/x",),
            {**HERE, "iam:PolicyARN": "arn:aws:iam::aws:policy/AdministratorAccess"},
        ),
        Request(
            "iam:PassRole",
            ("arn:aws:iam::123456789012:role/parallelcluster/llama/x",),
            {**HERE, "iam:PassedToService": "glue.amazonaws.com"},
        ),
        Request("s3:GetObject", ("arn:aws:s3:::kitae-other-123456789012-us-west-2/x",), HERE),
        Request("s3:DeleteBucket", ("arn:aws:s3:::results",), HERE),
        Request(
            "states:DeleteStateMachine", (ARN.format("states", "stateMachine:kitae-other-switch"),), HERE
        ),
        Request("scheduler:DeleteSchedule", (ARN.format("scheduler", "schedule/default/payroll"),), HERE),
        Request("dynamodb:DeleteTable", (ARN.format("dynamodb", "table/customers"),), HERE),
        Request("lambda:DeleteFunction", (ARN.format("lambda", "function:billing"),), HERE),
        Request("logs:DeleteLogGroup", (ARN.format("logs", "log-group:/aws/lambda/billing:*"),), HERE),
        Request("iam:CreateUser", ("*",), HERE),
        Request("organizations:LeaveOrganization", ("*",), HERE),
    ],
    ids=lambda one: f"{one.action} {one.resources[0][-30:]}",
)
def test_what_is_somebody_elses_is_denied(request_):
    assert denied(statements(SCOPE), request_) != []
    assert denied(ending_statements(SCOPE), request_) != []


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("ec2:RunInstances", ARN.format("ec2", "instance/*")),
        ("cloudformation:CreateStack", ARN.format("cloudformation", "stack/llama/1")),
        ("iam:CreateRole", "arn:aws:iam::123456789012:role/parallelcluster/llama/x"),
        ("iam:PutRolePolicy", "arn:aws:iam::123456789012:role/parallelcluster/llama/x"),
        ("s3:PutObject", "arn:aws:s3:::kitae-llama-123456789012-us-west-2/x"),
        ("scheduler:UpdateSchedule", ARN.format("scheduler", "schedule/default/kitae-llama-switch")),
    ],
)
def test_the_switch_makes_nothing(action, resource):
    request_ = Request(action, (resource,), {**HERE, "aws:ResourceTag/parallelcluster:cluster-name": "llama"})
    assert denied(statements(SCOPE), request_) == []
    assert denied(ending_statements(SCOPE), request_) != []
