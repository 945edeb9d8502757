"""The cluster file as the account has it: in the cluster's bucket, for any machine that goes on with it.

ParallelCluster keeps its own configuration there, which knows nothing of limits, prices and of what is
saved.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from kitae.cluster.aws import Account, error_code, plainly
from kitae.cluster.names import Names
from kitae.cluster.schema import ClusterFile
from kitae.errors import ClusterError

_FILE = "kitae/cluster.json"
_CHANGE = "kitae/changing.json"
_MISSING = ("NoSuchKey", "NoSuchBucket", "404")


def keep(account: Account, file: ClusterFile) -> None:
    """Say in the account what the cluster is now made of."""
    _put(account, file.name, _FILE, file.model_dump(mode="json"))


def kept(account: Account, name: str) -> ClusterFile | None:
    """What the cluster is made of; None where nothing says so. Raises `ClusterError`."""
    found = _get(account, name, _FILE)
    if found is None:
        return None
    try:
        return ClusterFile.model_validate_json(json.dumps(found), strict=True)
    except ValidationError:
        raise ClusterError(
            f"{_FILE} in the bucket of {name} is of another kitae; give the cluster file instead of the "
            "name, or take that kitae"
        ) from None


def known(account: Account, name: str) -> ClusterFile:
    """What the cluster is made of. Raises `ClusterError` where nothing says so."""
    found = kept(account, name)
    if found is None:
        raise ClusterError(
            f"no cluster {name} of kitae is in {account.region}: its bucket has no {_FILE}; "
            "kitae cluster list shows those that are, by region"
        )
    return found


def begin_change(account: Account, name: str, what: dict[str, Any]) -> None:
    """Note what is to be put right after a change, for whoever goes on with it."""
    _put(account, name, _CHANGE, what)


def change_begun(account: Account, name: str) -> dict[str, Any]:
    """What a change that was begun noted; empty where none was."""
    return _get(account, name, _CHANGE) or {}


def end_change(account: Account, name: str) -> None:
    """The change is done."""
    with plainly(f"writing into the bucket of {name}"):
        account.client("s3").delete_object(Bucket=_bucket(account, name), Key=_CHANGE)


def _bucket(account: Account, name: str) -> str:
    return Names(name).bucket(account.number, account.region)


def _put(account: Account, name: str, key: str, value: dict[str, Any]) -> None:
    with plainly(f"writing into the bucket of {name}"):
        account.client("s3").put_object(
            Bucket=_bucket(account, name), Key=key, Body=json.dumps(value).encode()
        )


def _get(account: Account, name: str, key: str) -> dict[str, Any] | None:
    from botocore.exceptions import ClientError

    with plainly(f"reading the bucket of {name}"):
        try:
            body = account.client("s3").get_object(Bucket=_bucket(account, name), Key=key)["Body"].read()
        except ClientError as error:
            if error_code(error) in _MISSING:
                return None
            raise
    found: dict[str, Any] = json.loads(body)
    return found
