"""The cluster's bucket: scripts for its nodes, and ParallelCluster's templates. It goes with the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kitae.cluster.aws import Account, error_code, plainly
from kitae.cluster.bootstrap_scripts import node_files, scripts_folder

_US_EAST_1 = "us-east-1"
"""The region that does not want to be named as a place."""
_AT_ONCE = 1000


def make_bucket(account: Account, name: str, tags: Mapping[str, str]) -> None:
    """Make it, private and with versions as ParallelCluster wants, unless it is there."""
    s3 = account.client("s3")
    with plainly(f"making the bucket {name}"):
        if not bucket_exists(account, name):
            place: dict[str, Any] = {"CreateBucketConfiguration": {"LocationConstraint": account.region}}
            s3.create_bucket(Bucket=name, **({} if account.region == _US_EAST_1 else place))
        s3.put_bucket_tagging(
            Bucket=name, Tagging={"TagSet": [{"Key": key, "Value": value} for key, value in tags.items()]}
        )
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        closed = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
        s3.put_public_access_block(Bucket=name, PublicAccessBlockConfiguration=dict.fromkeys(closed, True))


def bucket_exists(account: Account, name: str) -> bool:
    """Whether the bucket is there, and ours."""
    from botocore.exceptions import ClientError

    with plainly(f"looking for the bucket {name}"):
        try:
            account.client("s3").head_bucket(Bucket=name)
        except ClientError as error:
            if error_code(error) in ("404", "NoSuchBucket"):
                return False
            raise
    return True


def publish(account: Account, bucket: str, wheel: Path | None) -> tuple[str, str]:
    """Put scripts and kitae itself there; the scripts' folder and the wheel's address."""
    s3, folder = account.client("s3"), scripts_folder()
    with plainly(f"writing into the bucket {bucket}"):
        for name, text in node_files().items():
            s3.put_object(Bucket=bucket, Key=f"{folder}/{name}", Body=text.encode())
        if wheel is None:
            return folder, ""
        s3.put_object(Bucket=bucket, Key=f"bootstrap/{wheel.name}", Body=wheel.read_bytes())
    return folder, f"s3://{bucket}/bootstrap/{wheel.name}"


def remove_bucket(account: Account, name: str) -> None:
    """Delete it with all versions of all that is in it; nothing, where it is not there."""
    if not bucket_exists(account, name):
        return
    s3 = account.client("s3")
    with plainly(f"deleting the bucket {name}"):
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=name):
            found = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
            objects = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in found]
            for start in range(0, len(objects), _AT_ONCE):
                s3.delete_objects(Bucket=name, Delete={"Objects": objects[start:][:_AT_ONCE], "Quiet": True})
        s3.delete_bucket(Bucket=name)
