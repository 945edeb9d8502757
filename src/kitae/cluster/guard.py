"""The head node's guard, seen from here: what it is started with, and what it told."""

from __future__ import annotations

import json

from kitae.cluster.aws import Account, error_code, plainly
from kitae.cluster.guard_program import Limits, Verdict
from kitae.cluster.moments import seconds_of
from kitae.cluster.money import price
from kitae.cluster.schema import ClusterFile

REPORT = "guard/report.json"
"""In the cluster's bucket."""


def limits_of(file: ClusterFile) -> Limits:
    """What a cluster file allows machines that do not come."""
    prices = {queue.name: price(file, queue.instance) for queue in file.queues}
    known = {name: f"{usd:f}" for name, usd in prices.items() if usd is not None}
    return Limits(file.limits.boot_failures, float(seconds_of(file.limits.capacity_wait)), known)


def guard_words(file: ClusterFile, bucket: str) -> list[str]:
    """What the bootstrap script of the head node starts it with."""
    limits = limits_of(file)
    words = {
        "boot_failures": str(limits.boot_failures),
        "capacity_wait_s": f"{limits.capacity_wait_s:g}",
        **{f"usd.{queue}": usd for queue, usd in limits.usd.items()},
        "report": f"s3://{bucket}/{REPORT}",
    }
    return [f"watch={key}={value}" for key, value in words.items()]


def verdicts(account: Account, bucket: str) -> list[Verdict]:
    """What it ended so far, oldest first; nothing, where it told nothing."""
    from botocore.exceptions import ClientError

    with plainly("reading what the head node's guard told"):
        try:
            body = account.client("s3").get_object(Bucket=bucket, Key=REPORT)["Body"].read()
        except ClientError as error:
            if error_code(error) in ("NoSuchKey", "NoSuchBucket", "404"):
                return []
            raise
    try:
        return [Verdict(**one) for one in json.loads(body)["verdicts"]]
    except (ValueError, KeyError, TypeError):
        return []
