"""The generated policy: enough, and no more than what is named."""

from __future__ import annotations

import json

import pytest
from cluster_case import write_cluster

from kitae.cli.main import main
from kitae.cluster.policy import LONGEST, Scope, allows, ending_statements, policies, statements

SCOPE = Scope("llama", "us-west-2", "123456789012")


def test_nothing_is_allowed_as_a_whole():
    for one in statements(SCOPE):
        for action in one["Action"]:
            service, _, word = action.partition(":")
            assert service.isascii()
            assert service
            assert word
            assert not word.startswith("*"), action
            assert "*" not in word or word == "Describe*", action


def test_every_resource_is_named_but_where_only_the_region_can_be():
    anywhere = {
        one["Sid"] for one in statements(SCOPE) if one["Resource"] == ["*"] and "Condition" not in one
    }
    assert anywhere == {"LookEverywhere", "Names"}
    held = {one["Sid"] for one in statements(SCOPE) if one["Resource"] == ["*"] and "Condition" in one}
    assert held == {"Look", "AskForQuota", "Machines", "EndMachines", "Network", "Saved"}
    for one in statements(SCOPE):
        if one["Sid"] in held:
            assert one["Condition"]["StringEquals"]["aws:RequestedRegion"] == "us-west-2"


def test_what_bears_a_name_is_of_this_cluster():
    found = {one["Sid"]: one["Resource"] for one in statements(SCOPE)}
    assert found["Bucket"][0] == "arn:aws:s3:::kitae-llama-123456789012-us-west-2"
    assert "arn:aws:cloudformation:us-west-2:123456789012:stack/llama/*" in found["Stacks"]
    assert all("llama" in one for one in found["Roles"])


def test_each_document_fits_a_managed_policy_and_names_are_unique():
    found = policies(Scope("a" * 28, "ap-southeast-4", "123456789012"))
    assert len(found) > 1
    sids = [one["Sid"] for document in found for one in document["Statement"]]
    assert len(set(sids)) == len(sids)
    for document in found:
        assert len(json.dumps(document, separators=(",", ":"))) <= LONGEST


@pytest.mark.parametrize(
    ("action", "may"),
    [
        ("ec2:RunInstances", True),
        ("ec2:DescribeVpcs", True),
        ("fsx:CreateFileSystem", True),
        ("iam:PassRole", True),
        ("iam:CreateUser", False),
        ("ec2:CreateVpnGateway", False),
        ("s3:PutBucketAcl", False),
    ],
)
def test_what_is_allowed(action, may):
    assert allows(statements(SCOPE), action) is may


def test_the_switch_may_end_and_begin_nothing():
    found = ending_statements(SCOPE)
    for action in (
        "ec2:TerminateInstances",
        "cloudformation:DeleteStack",
        "fsx:DeleteFileSystem",
        "s3:DeleteBucket",
    ):
        assert allows(found, action), action
    for action in ("ec2:RunInstances", "cloudformation:CreateStack", "iam:PassRole", "iam:CreateRole"):
        assert not allows(found, action), action
    # An inline policy of a role has at most 10,240 characters.
    assert len(json.dumps(found, separators=(",", ":"))) < 10_000


def test_the_verb_prints_or_writes_them(tmp_path, capsys):
    path = str(write_cluster(tmp_path))
    assert main(["cluster", "policy", path]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == policies(Scope("llama", "us-west-2"))
    assert main(["cluster", "policy", path, "--account", "123456789012", "--write", str(tmp_path / "p")]) == 0
    written = [json.loads((tmp_path / f"p/policy-{n}.json").read_text()) for n in (1, 2)]
    assert written == policies(SCOPE)
