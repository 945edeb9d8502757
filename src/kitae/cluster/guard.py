"""The head node's guard, seen from here: what it is allowed, and what it told. Both lie in the bucket."""

from __future__ import annotations

import json
from dataclasses import asdict

from kitae.cluster.aws import Account, error_code, plainly
from kitae.cluster.guard_program import LIMITS, REPORT, Limits, Verdict
from kitae.cluster.moments import seconds_of
from kitae.cluster.money import price
from kitae.cluster.schema import ClusterFile

FOLDER = "guard"
"""In the cluster's bucket. Arguments of the head node's scripts can never change; what lies here can."""


def limits_of(file: ClusterFile) -> Limits:
    """What a cluster file allows machines that do not come."""
    prices = {queue.name: price(file, queue.instance) for queue in file.queues}
    known = {name: f"{usd:f}" for name, usd in prices.items() if usd is not None}
    return Limits(file.limits.boot_failures, float(seconds_of(file.limits.capacity_wait)), known)


def publish_limits(account: Account, bucket: str, file: ClusterFile) -> None:
    """Tell the guard, which looks there every minute."""
    body = json.dumps(asdict(limits_of(file))).encode()
    with plainly(f"writing into the bucket {bucket}"):
        account.client("s3").put_object(Bucket=bucket, Key=f"{FOLDER}/{LIMITS}", Body=body)


def verdicts(account: Account, bucket: str) -> list[Verdict]:
    """What it ended so far, oldest first; nothing, where it told nothing."""
    from botocore.exceptions import ClientError

    with plainly("reading what the head node's guard told"):
        try:
            body = account.client("s3").get_object(Bucket=bucket, Key=f"{FOLDER}/{REPORT}")["Body"].read()
        except ClientError as error:
            if error_code(error) in ("NoSuchKey", "NoSuchBucket", "404"):
                return []
            raise
    try:
        return [Verdict(**one) for one in json.loads(body)["verdicts"]]
    except (ValueError, KeyError, TypeError):
        return []
