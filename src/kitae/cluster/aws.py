"""AWS, asked plainly: clients that are made when they are needed, and errors in words.

boto3 is the extra `aws`; nothing here imports it before something is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kitae.errors import ClusterError

_INSTALL = "boto3 is not installed; install kitae[aws], which needs it to talk to AWS"
_LOGIN = "log in (aws configure, aws sso login) or set AWS_PROFILE"
# By the code of AWS's error; what is wrong with the person's side, and the way out.
_CAUSES = {
    "AccessDenied": "is not allowed; kitae cluster policy prints what is needed",
    "AccessDeniedException": "is not allowed; kitae cluster policy prints what is needed",
    "UnauthorizedOperation": "is not allowed; kitae cluster policy prints what is needed",
    "InvalidClientTokenId": f"was refused: AWS does not know these credentials; {_LOGIN}",
    "UnrecognizedClientException": f"was refused: AWS does not know these credentials; {_LOGIN}",
    "SignatureDoesNotMatch": f"was refused: the secret key is wrong; {_LOGIN}",
    "AuthFailure": f"was refused: AWS does not know these credentials; {_LOGIN}",
    "ExpiredToken": f"was refused: the login has expired; {_LOGIN}",
    "ExpiredTokenException": f"was refused: the login has expired; {_LOGIN}",
    "RequestExpired": "was refused: the clock here is wrong, or the login has expired; set it, or log in",
    "OptInRequired": "was refused: the region is not enabled for this account; enable it, or take another",
}


@dataclass(frozen=True)
class Account:
    """An account in a region."""

    region: str
    _clients: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def client(self, service: str, region: str | None = None) -> Any:
        """The client of a service. Raises `ClusterError` without boto3."""
        key = f"{service} {region or self.region}"
        if key not in self._clients:
            self._clients[key] = _boto3().client(service, region_name=region or self.region)
        return self._clients[key]

    @cached_property
    def identity(self) -> dict[str, str]:
        """Number of the account, and who asks: `Account` and `Arn`."""
        with plainly("asking AWS who this is"):
            answer = self.client("sts").get_caller_identity()
        return {"Account": answer["Account"], "Arn": answer["Arn"]}

    @property
    def number(self) -> str:
        """Number of the account."""
        return self.identity["Account"]

    def pages(self, service: str, operation: str, key: str, **wanted: Any) -> list[Any]:
        """All entries of a list that AWS gives page by page."""
        client = self.client(service)
        with plainly(f"{service}:{operation}"):
            if not client.can_paginate(operation):
                return list(getattr(client, operation)(**wanted)[key])
            return [one for page in client.get_paginator(operation).paginate(**wanted) for one in page[key]]


def error_code(error: BaseException | None) -> str:
    """The code of an error of AWS, such as `AccessDenied`; empty for others."""
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def is_client_error(error: BaseException | None) -> bool:
    """Whether AWS answered, and refused."""
    return bool(error_code(error))


@contextmanager
def plainly(doing: str) -> Iterator[None]:
    """Turn what boto3 raises while `doing` into a `ClusterError` with its cause and the way out."""
    _boto3()
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except ClientError as error:
        raise ClusterError(f"{doing} {_refusal(error)}") from error
    except BotoCoreError as error:
        raise ClusterError(f"{doing} failed: {_local(error)}") from error
    except ResponseParserError as error:
        raise ClusterError(
            f"{doing} failed: the answer is none of AWS's; something between, such as a proxy, gave it"
        ) from error


def _refusal(error: Any) -> str:
    code = error_code(error)
    message = " ".join(str(error.response["Error"].get("Message", "")).split())
    return _CAUSES.get(code) or f"was refused: {code}: {message}"


def _local(error: Exception) -> str:
    kind = type(error).__name__
    if "Credentials" in kind or kind in (
        "TokenRetrievalError",
        "SSOTokenLoadError",
        "UnauthorizedSSOTokenError",
    ):
        return f"there is no login to AWS here ({error}); {_LOGIN}"
    if "Connection" in kind or "Timeout" in kind:
        return f"AWS cannot be reached ({error}); check the network"
    return f"{error}"


def _boto3() -> Any:
    try:
        import boto3
    except ImportError:
        raise ClusterError(_INSTALL) from None
    return boto3
