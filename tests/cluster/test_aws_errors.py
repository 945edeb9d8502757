"""What AWS, or the lack of it, says is told in words with the way out."""

from __future__ import annotations

import builtins

import pytest

from kitae.cluster.aws import Account, plainly
from kitae.errors import ClusterError


def test_without_boto3_there_is_one_clear_message(monkeypatch):
    real = builtins.__import__

    def refuse(name, *arguments, **named):
        if name == "boto3":
            raise ImportError(name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ClusterError, match=r"install kitae\[aws\]"):
        Account("us-west-2").client("ec2")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("UnauthorizedOperation", "kitae cluster policy prints what is needed"),
        ("ExpiredToken", "the login has expired"),
        ("InvalidClientTokenId", "aws configure"),
        ("OptInRequired", "the region is not enabled"),
        ("SomethingNew", "was refused: SomethingNew: of its own kind"),
    ],
)
def test_refusals(code, words):
    from botocore.exceptions import ClientError

    with pytest.raises(ClusterError, match="starting machines") as error, plainly("starting machines"):
        raise ClientError({"Error": {"Code": code, "Message": "of its\nown kind"}}, "RunInstances")
    assert words in str(error.value)


def test_no_login(monkeypatch, moto):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    with pytest.raises(ClusterError, match="there is no login to AWS here"):
        _ = Account("us-west-2").number


def test_no_network(monkeypatch, moto):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(ClusterError, match="AWS cannot be reached"):
        _ = Account("us-west-2").number


def test_an_account_knows_its_number(moto):
    assert Account("us-west-2").number == "123456789012"
