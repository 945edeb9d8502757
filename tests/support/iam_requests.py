"""Recorded calls in the words of policies: action, resources, and what conditions look at.

After AWS's Service Authorization Reference: which resources an action is of, and which of S3's and others'
REST calls is which action.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote

from iam_evaluator import Request
from moto_server import ACCOUNT

Call = Mapping[str, str]
# By method, what is named in the path, and the first word of the query.
_S3 = {
    ("GET", "", ""): "ListAllMyBuckets",
    ("HEAD", "bucket", ""): "ListBucket",
    ("GET", "bucket", ""): "ListBucket",
    ("GET", "bucket", "list-type"): "ListBucket",
    ("GET", "bucket", "prefix"): "ListBucket",
    ("GET", "bucket", "versions"): "ListBucketVersions",
    ("GET", "bucket", "location"): "GetBucketLocation",
    ("GET", "bucket", "versioning"): "GetBucketVersioning",
    ("GET", "bucket", "encryption"): "GetEncryptionConfiguration",
    ("GET", "bucket", "policy"): "GetBucketPolicy",
    ("PUT", "bucket", ""): "CreateBucket",
    ("PUT", "bucket", "publicAccessBlock"): "PutBucketPublicAccessBlock",
    ("PUT", "bucket", "tagging"): "PutBucketTagging",
    ("PUT", "bucket", "versioning"): "PutBucketVersioning",
    ("PUT", "bucket", "encryption"): "PutEncryptionConfiguration",
    ("PUT", "bucket", "policy"): "PutBucketPolicy",
    ("POST", "bucket", "delete"): "DeleteObjectVersion",
    ("DELETE", "bucket", ""): "DeleteBucket",
    ("GET", "object", ""): "GetObject",
    ("HEAD", "object", ""): "GetObject",
    ("GET", "object", "versionId"): "GetObjectVersion",
    ("PUT", "object", ""): "PutObject",
    ("DELETE", "object", ""): "DeleteObject",
}
_SCHEDULER = {("GET", "/schedules"): "ListSchedules", ("GET", "/schedules/"): "GetSchedule"}
# By method, and how deep the path is: /2013-04-01/hostedzone/Z1/rrset.
_ROUTE53 = {
    ("GET", 2): "ListHostedZones",
    ("GET", 3): "GetHostedZone",
    ("GET", 4): "ListResourceRecordSets",
    ("POST", 4): "ChangeResourceRecordSets",
    ("DELETE", 3): "DeleteHostedZone",
}
_SERVICES = {"monitoring": "cloudwatch"}


def request_of(call: Call, tags: Mapping[str, Mapping[str, str]]) -> Request:
    """A recorded call; `tags` are those of resources by id."""
    service, _, rest = call["action"].partition(":")
    service = _SERVICES.get(service, service)
    context = {"aws:RequestedRegion": call["region"]}
    if service == "s3":
        return _of_s3(rest.partition(" ")[0], call, context)
    if service == "scheduler":
        method, _, path = rest.partition(" ")
        name = path.removeprefix("/schedules").strip("/")
        action = _SCHEDULER[method, path if not name else "/schedules/"]
        return Request(
            f"scheduler:{action}",
            (_arn("scheduler", call, f"schedule/default/{name}") if name else "*",),
            context,
        )
    if service == "route53":
        return Request(
            f"route53:{_ROUTE53[rest.partition(' ')[0], call['path'].count('/')]}", ("*",), context
        )
    action = f"{service}:{rest}"
    words = _words(call["body"])
    resources, tagged = _RESOURCES.get(service, _nothing)(action, words, call)
    found = {f"aws:ResourceTag/{key}": value for one in tagged for key, value in tags.get(one, {}).items()}
    return Request(action, resources, {**context, **found})


def _of_s3(method: str, call: Call, context: dict[str, str]) -> Request:
    bucket, _, key = unquote(call["path"].lstrip("/")).partition("/")
    what = "object" if key else "bucket" if bucket else ""
    first = re.split("[=&]", call["query"])[0]
    known = {word for _, _, word in _S3}
    action = _S3[method, what, first if first in known else ""]
    name = f"{bucket}/{key}" if key else f"{bucket}/*" if action == "DeleteObjectVersion" else bucket
    return Request(f"s3:{action}", (f"arn:aws:s3:::{name}" if bucket else "*",), context)


def _words(body: str) -> dict[str, Any]:
    if body.startswith("{"):
        found: dict[str, Any] = json.loads(body)
        return found
    return {key: values[0] for key, values in parse_qs(body).items()}


def _arn(service: str, call: Call, rest: str) -> str:
    return f"arn:aws:{service}:{call['region']}:{ACCOUNT}:{rest}"


Found = tuple[tuple[str, ...], list[str]]


def _nothing(action: str, words: Mapping[str, Any], call: Call) -> Found:
    return ("*",), []


def _of_stacks(action: str, words: Mapping[str, Any], call: Call) -> Found:
    name = words.get("StackName")
    if name is None or action == "cloudformation:ValidateTemplate":
        return ("*",), []
    return (name if name.startswith("arn:") else _arn("cloudformation", call, f"stack/{name}/0f1e2d3c"),), []


def _of_machines(action: str, words: Mapping[str, Any], call: Call) -> Found:
    ids = [value for key, value in words.items() if key.startswith("InstanceId.")]
    if action == "ec2:RunInstances":
        kinds = ("instance/*", "volume/*", "network-interface/*", "subnet/subnet-1", "security-group/sg-1")
        return tuple(_arn("ec2", call, kind) for kind in kinds), []
    if ids and not action.startswith("ec2:Describe"):
        return tuple(_arn("ec2", call, f"instance/{one}") for one in ids), ids
    return ("*",), []


def _of_file_systems(action: str, words: Mapping[str, Any], call: Call) -> Found:
    one = words.get("FileSystemId", "*")
    if action.startswith("fsx:Describe"):
        return ("*",), []
    return (_arn("fsx", call, f"file-system/{one}"),), [one]


def _of_logs(action: str, words: Mapping[str, Any], call: Call) -> Found:
    name = words.get("logGroupName")
    return (("*",) if name is None else (_arn("logs", call, f"log-group:{name}:log-stream:x"),)), []


def _of_commands(action: str, words: Mapping[str, Any], call: Call) -> Found:
    if action != "ssm:SendCommand":
        return ("*",), []
    instances = [_arn("ec2", call, f"instance/{one}") for one in words["InstanceIds"]]
    return (f"arn:aws:ssm:{call['region']}::document/{words['DocumentName']}", *instances), []


def _of_states(action: str, words: Mapping[str, Any], call: Call) -> Found:
    return (words.get("stateMachineArn", "*"),), []


def _of_roles(action: str, words: Mapping[str, Any], call: Call) -> Found:
    if "RoleName" in words:
        return (f"arn:aws:iam::{ACCOUNT}:role/{words['RoleName']}",), []
    if "PolicyArn" in words:
        return (words["PolicyArn"],), []
    return ("*",), []


def _of_tables(action: str, words: Mapping[str, Any], call: Call) -> Found:
    return (_arn("dynamodb", call, f"table/{words['TableName']}"),), []


def _of_quotas(action: str, words: Mapping[str, Any], call: Call) -> Found:
    return ("*",), []


_RESOURCES: Mapping[str, Callable[[str, Mapping[str, Any], Call], Found]] = {
    "cloudformation": _of_stacks,
    "ec2": _of_machines,
    "fsx": _of_file_systems,
    "logs": _of_logs,
    "ssm": _of_commands,
    "states": _of_states,
    "iam": _of_roles,
    "dynamodb": _of_tables,
    "servicequotas": _of_quotas,
}
