# ruff: noqa: E501 - a table
"""The judge of policies: as IAM decides, else what passes means nothing."""

from __future__ import annotations

import pytest
from iam_evaluator import Request, denied

HERE = {"aws:RequestedRegion": "us-west-2"}


def allow(action: object, resource: object = "*", **more: object) -> dict[str, object]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def held(operator: str, key: str, value: object) -> dict[str, object]:
    return {"Condition": {operator: {key: value}}}


BUCKET = "arn:aws:s3:::b"


@pytest.mark.parametrize(
    ("statements", "request_", "may"),
    [
        ([], Request("ec2:RunInstances"), False),
        ([allow("ec2:RunInstances")], Request("ec2:RunInstances"), True),
        ([allow("EC2:runinstances")], Request("ec2:RunInstances"), True),
        ([allow("ec2:Describe*")], Request("ec2:DescribeVpcs"), True),
        ([allow("ec2:Describe*")], Request("ec2:RunInstances"), False),
        ([allow("s3:Get?bject")], Request("s3:GetObject", (f"{BUCKET}/k",)), True),
        ([allow("s3:GetObject", BUCKET)], Request("s3:GetObject", (f"{BUCKET}/k",)), False),
        ([allow("s3:GetObject", [BUCKET, f"{BUCKET}/*"])], Request("s3:GetObject", (f"{BUCKET}/k/l",)), True),
        ([allow("s3:*", f"{BUCKET}*")], Request("s3:GetObject", ("arn:aws:s3:::B/k",)), False),
        ([allow("a:b", "x[1]")], Request("a:b", ("x1",)), False),
        # Each resource must be allowed, by whichever statement.
        ([allow("a:b", "x"), allow("a:b", "y")], Request("a:b", ("x", "y")), True),
        ([allow("a:b", "x")], Request("a:b", ("x", "y")), False),
        # A denial wins.
        ([allow("a:b"), {"Effect": "Deny", "Action": "a:*", "Resource": "x"}], Request("a:b", ("x",)), False),
        ([allow("a:b"), {"Effect": "Deny", "Action": "a:*", "Resource": "x"}], Request("a:b", ("y",)), True),
        ([{"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}], Request("iam:GetRole"), False),
        ([{"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}], Request("ec2:RunInstances"), True),
        # Conditions: every key, some value; a key that is not there does not hold.
        ([allow("a:b", **held("StringEquals", "aws:RequestedRegion", "us-west-2"))], Request("a:b", context=HERE), True),
        ([allow("a:b", **held("StringEquals", "aws:requestedregion", ["x", "us-west-2"]))], Request("a:b", context=HERE), True),
        ([allow("a:b", **held("StringEquals", "aws:RequestedRegion", "us-east-1"))], Request("a:b", context=HERE), False),
        ([allow("a:b", **held("StringEquals", "aws:RequestedRegion", "us-west-2"))], Request("a:b"), False),
        ([allow("a:b", **held("StringEqualsIfExists", "x:y", "z"))], Request("a:b"), True),
        ([allow("a:b", **held("StringNotEquals", "x:y", "z"))], Request("a:b", context={"x:y": "z"}), False),
        ([allow("a:b", **held("ArnLike", "iam:PolicyARN", "arn:aws:iam::aws:policy/C*"))],
         Request("a:b", context={"iam:PolicyARN": "arn:aws:iam::aws:policy/CloudWatch"}), True),
        ([allow("a:b", **held("ArnLike", "iam:PolicyARN", "arn:aws:iam::aws:policy/C*"))],
         Request("a:b", context={"iam:PolicyARN": "arn:aws:iam::aws:policy/AdministratorAccess"}), False),
    ],
)  # fmt: skip
def test_it_decides_as_iam_does(statements, request_, may):
    assert (denied(statements, request_) == []) is may
