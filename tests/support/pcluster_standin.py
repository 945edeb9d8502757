"""Plays `pcluster`: answers with its JSON, and makes in moto what ParallelCluster would make in AWS.

As a class it is an engine in this process; as a program (`bin/pcluster` of a stand-in environment) it is
what kitae starts. Between calls it remembers in a folder what it was told to play, and how far its clusters
are.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from pcluster_policies import rows_of

VERSION = "3.16.1"
FOLDER = "KITAE_STANDIN"
_TAG = "parallelcluster:cluster-name"


@dataclass
class Play:
    """What happens."""

    polls: int = 1
    """So often a change is told to be in progress."""
    update_fails: str = ""
    """The reason of the first resource that cannot be changed; all is as it was then."""
    create_fails: str = ""
    """The reason of the first resource that cannot be made."""
    delete_fails: int = 0
    """So often deleting fails before it works."""
    stuck: bool = False
    """Deleting never ends."""
    leaks: list[str] = field(default_factory=list)
    """What deleting leaves: instance, volume, fsx."""


class StandIn:
    """An engine."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "standin.json"

    def play(self, **wanted: Any) -> StandIn:
        """Say what happens from now on."""
        state = self._state()
        state["play"] = {**vars(Play()), **wanted}
        self._keep(state)
        return self

    def know(self, name: str) -> None:
        """A cluster that stands already."""
        state = self._state()
        state["clusters"][name] = {"status": "CREATE_COMPLETE", "polls": 0, "events": []}
        self._keep(state)

    def update_rows(self, name: str, old: Any, targets: Mapping[str, Any]) -> dict[str, Any]:
        """What policies say, as `kitae.cluster.pcluster.Engine.update_rows` tells it."""
        return {key: rows_of(old, new) for key, new in targets.items()}

    def run(self, words: Sequence[str], environment: Mapping[str, str] | None = None) -> Any:
        """Answer as `kitae.cluster.pcluster.Engine.run` does."""
        from kitae.cluster.pcluster import Answer

        code, body = self.answer(list(words))
        return Answer(code, body, json.dumps(body))

    def schema_problems(self, config: Mapping[str, Any], name: str) -> list[str]:
        """No problem."""
        return []

    def answer(self, words: list[str]) -> tuple[int, dict[str, Any]]:
        """Exit code and JSON."""
        state = self._state()
        state["asked"].append(" ".join(words))
        verb, options = words[0], _options(words[1:])
        code, body = _VERBS[verb](state, options)
        self._keep(state)
        return code, body

    @property
    def asked(self) -> list[str]:
        """Every command so far."""
        found: list[str] = self._state()["asked"]
        return found

    def _state(self) -> dict[str, Any]:
        if not self.path.exists():
            return {"play": vars(Play()), "clusters": {}, "asked": []}
        found: dict[str, Any] = json.loads(self.path.read_text("utf-8"))
        return found

    def _keep(self, state: dict[str, Any]) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(state), "utf-8")
        new.replace(self.path)


def environment(folder: Path) -> Path:
    """A virtual environment's folder, in so far as kitae looks at it, whose `pcluster` is this file."""
    program = folder / "bin/pcluster"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} "$@"\n')
    python = folder / "bin/python"
    python.write_text("#!/bin/sh\ncat >/dev/null\necho '[]'\n")
    for path in (program, python):
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


@cache
def _client_of(service: str, region: str, server: str | None) -> Any:
    import boto3

    return boto3.client(service, region_name=region)


def _options(words: list[str]) -> dict[str, str]:
    """Options with the words that follow them."""
    found: dict[str, str] = {}
    option = ""
    for word in words:
        option = word if word.startswith("--") else option
        found[option] = "" if word == option else f"{found[option]} {word}".strip()
    return found


def _client(service: str, options: Mapping[str, str]) -> Any:
    return _client_of(service, options["--region"], os.environ.get("AWS_ENDPOINT_URL"))


def _create(state: dict[str, Any], options: dict[str, str]) -> tuple[int, dict[str, Any]]:
    name = options["--cluster-name"]
    config = yaml.safe_load(Path(options["--cluster-configuration"]).read_text("utf-8"))
    if options.get("--dryrun") == "true":
        return 1, {"message": "Request would have succeeded, but DryRun flag is set."}
    if name in state["clusters"]:
        return 1, {"message": f"Bad Request: Cluster {name} already exists."}
    _make(name, config, options)
    state["clusters"][name] = {
        "status": "CREATE_IN_PROGRESS",
        "polls": state["play"]["polls"],
        "events": [],
        "config": config,
        "fleet": "RUNNING",
    }
    return 0, {"cluster": {"clusterName": name, "clusterStatus": "CREATE_IN_PROGRESS"}}


def _make(name: str, config: dict[str, Any], options: dict[str, str]) -> None:
    ec2, tags = _client("ec2", options), [{"Key": _TAG, "Value": name}, *config["Tags"]]
    template = json.dumps({"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}})
    _client("cloudformation", options).create_stack(StackName=name, TemplateBody=template, Tags=tags)
    head = config["HeadNode"]
    _start(ec2, (head["InstanceType"], head["Networking"]["SubnetId"], 1, ""), tags, _key(ec2, head))
    for wanted in _static(config):
        _start(ec2, wanted, tags)
    _store(config, options, tags)


def _static(config: dict[str, Any]) -> list[tuple[str, str, int, str]]:
    """Type, subnet, count and queue of machines that are always on."""
    return [
        (resource["InstanceType"], queue["Networking"]["SubnetIds"][0], resource["MinCount"], queue["Name"])
        for queue in config["Scheduling"]["SlurmQueues"]
        for resource in queue["ComputeResources"]
    ]


def _key(ec2: Any, head: dict[str, Any]) -> dict[str, str]:
    """The head node's key pair, where the account has it."""
    name = head.get("Ssh", {}).get("KeyName")
    known = [one["KeyName"] for one in ec2.describe_key_pairs()["KeyPairs"]]
    return {"KeyName": name} if name in known else {}


def _start(
    ec2: Any, wanted: tuple[str, str, int, str], tags: list[dict[str, str]], key: dict[str, str] | None = None
) -> None:
    kind, subnet, count, queue = wanted
    own = [{"Key": "parallelcluster:node-type", "Value": "Compute" if queue else "HeadNode"}]
    own += [{"Key": "parallelcluster:queue-name", "Value": queue}] if queue else []
    if count > 0:
        ec2.run_instances(
            ImageId=ec2.describe_images()["Images"][0]["ImageId"],
            InstanceType=kind,
            SubnetId=subnet,
            MinCount=count,
            MaxCount=count,
            TagSpecifications=[{"ResourceType": "instance", "Tags": [*tags, *own]}],
            **(key or {}),
        )


def _store(config: dict[str, Any], options: dict[str, str], tags: list[dict[str, str]]) -> None:
    for storage in config.get("SharedStorage", ()):
        _client("fsx", options).create_file_system(
            FileSystemType="LUSTRE",
            StorageCapacity=storage["FsxLustreSettings"]["StorageCapacity"],
            SubnetIds=[config["HeadNode"]["Networking"]["SubnetId"]],
            Tags=tags,
        )


def _update(state: dict[str, Any], options: dict[str, str]) -> tuple[int, dict[str, Any]]:
    name = options["--cluster-name"]
    if name not in state["clusters"]:
        return _describe(state, options)
    found = state["clusters"][name]
    new = yaml.safe_load(Path(options["--cluster-configuration"]).read_text("utf-8"))
    rows = rows_of(found["config"], new)
    key = "allowed_stopped" if found["fleet"] == "STOPPED" else "allowed"
    body: dict[str, Any] = {"changeSet": [{"parameter": row["parameter"]} for row in rows]}
    refused = [row for row in rows if not row[key]]
    if refused and options.get("--force-update") != "true":
        wrong = [
            {"parameter": row["parameter"], "message": row["why_stopped"] or row["why"]} for row in refused
        ]
        return 1, {**body, "message": "Update failure", "updateValidationErrors": wrong}
    if not rows:
        return 1, {"message": "Bad Request: No changes found in your cluster configuration."}
    if options.get("--dryrun") == "true":
        return 1, {**body, "message": "Request would have succeeded, but DryRun flag is set."}
    found |= {"status": "UPDATE_IN_PROGRESS", "polls": state["play"]["polls"], "new": new}
    return 0, {**body, "cluster": {"clusterName": name, "clusterStatus": "UPDATE_IN_PROGRESS"}}


def _change(found: dict[str, Any], name: str, options: dict[str, str], reason: str) -> None:
    """An update comes to its end: machines that are always on come and go, and so does storage."""
    old, new = found["config"], found.pop("new")
    if reason:
        found |= {"status": "UPDATE_FAILED", "events": [("HeadNode", "UPDATE_FAILED", reason)]}
        return
    found |= {"status": "UPDATE_COMPLETE", "config": new}
    ec2, tags = _client("ec2", options), [{"Key": _TAG, "Value": name}, *new["Tags"]]
    before = {queue: count for *_, count, queue in _static(old)}
    for kind, subnet, count, queue in _static(new):
        _start(ec2, (kind, subnet, count - before.get(queue, 0), queue), tags)
    if old.get("SharedStorage") and _moved_storage(old, new):
        _delete_storage(name, options)
        _store(new, options, tags)
    elif new.get("SharedStorage") and not old.get("SharedStorage"):
        _store(new, options, tags)


def _moved_storage(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Storage goes when it is given up, and when its subnet is another."""
    subnets = [each["Scheduling"]["SlurmQueues"][0]["Networking"]["SubnetIds"] for each in (old, new)]
    return not new.get("SharedStorage") or subnets[0] != subnets[1]


def _delete_storage(name: str, options: dict[str, str]) -> None:
    fsx = _client("fsx", options)
    for one in fsx.describe_file_systems()["FileSystems"]:
        if {"Key": _TAG, "Value": name} in one["Tags"]:
            fsx.delete_file_system(FileSystemId=one["FileSystemId"])


def _describe(state: dict[str, Any], options: dict[str, str]) -> tuple[int, dict[str, Any]]:
    name = options["--cluster-name"]
    if name not in state["clusters"]:
        what = "does not exist or belongs to an incompatible ParallelCluster major version."
        return 1, {"message": f"Cluster '{name}' {what}"}
    found = state["clusters"][name]
    if found["status"].endswith("_IN_PROGRESS"):
        found["polls"] -= 1
        if found["polls"] < 0:
            _end(state, name, options)
    if name not in state["clusters"]:
        return _describe(state, options)
    body = {
        "clusterName": name,
        "clusterStatus": found["status"],
        "computeFleetStatus": found.get("fleet", "RUNNING"),
    }
    found["fleet"] = {"STOPPING": "STOPPED"}.get(body["computeFleetStatus"], body["computeFleetStatus"])
    if "config" in found:
        body["clusterConfiguration"] = {"url": _url(name, found["config"])}
    if found["status"].startswith("CREATE_FAILED"):
        body["failures"] = [{"failureCode": "RESOURCE_CREATION_FAILED", "failureReason": "it failed"}]
    else:
        body["headNode"] = {"instanceId": _head(name, options), "publicIpAddress": "203.0.113.9"}
    return 0, body


def _url(name: str, config: dict[str, Any]) -> str:
    """What ParallelCluster would have signed in S3."""
    return f"data:application/yaml,{quote(json.dumps(config))}"


def _head(name: str, options: dict[str, str]) -> str | None:
    groups = _client("ec2", options).describe_instances(Filters=[{"Name": f"tag:{_TAG}", "Values": [name]}])
    found = [one["InstanceId"] for group in groups["Reservations"] for one in group["Instances"]]
    return found[0] if found else None


def _end(state: dict[str, Any], name: str, options: dict[str, str]) -> None:
    """What was in progress comes to its end."""
    found, play = state["clusters"][name], state["play"]
    if found["status"] == "CREATE_IN_PROGRESS":
        failed = bool(play["create_fails"])
        found["status"] = "CREATE_FAILED" if failed else "CREATE_COMPLETE"
        if failed:
            found["events"] = [
                ("HeadNodeWaitCondition", "CREATE_FAILED", "Resource creation cancelled"),
                ("HeadNode", "CREATE_FAILED", play["create_fails"]),
            ]
    elif found["status"] == "UPDATE_IN_PROGRESS":
        _change(found, name, options, play["update_fails"])
    elif play["stuck"]:
        return
    elif play["delete_fails"]:
        play["delete_fails"] -= 1
        found["status"] = "DELETE_FAILED"
        found["events"] = [("CleanupResources", "DELETE_FAILED", "the function does not answer")]
    else:
        _take_away(play["leaks"], name, options)
        del state["clusters"][name]


def _take_away(leaks: list[str], name: str, options: dict[str, str]) -> None:
    ec2 = _client("ec2", options)
    groups = ec2.describe_instances(Filters=[{"Name": f"tag:{_TAG}", "Values": [name]}])["Reservations"]
    ids = [
        one["InstanceId"]
        for group in groups
        for one in group["Instances"]
        if one["State"]["Name"] == "running"
    ]
    kept = 1 if "instance" in leaks else 0
    if ids[kept:]:
        ec2.terminate_instances(InstanceIds=ids[kept:])
    if "volume" in leaks:
        tags = [{"ResourceType": "volume", "Tags": [{"Key": _TAG, "Value": name}]}]
        ec2.create_volume(Size=200, AvailabilityZone="us-west-2d", TagSpecifications=tags)
    if "fsx" not in leaks:
        _delete_storage(name, options)
    _client("cloudformation", options).delete_stack(StackName=name)


def _delete(state: dict[str, Any], options: dict[str, str]) -> tuple[int, dict[str, Any]]:
    name = options["--cluster-name"]
    if name not in state["clusters"]:
        return _describe(state, options)
    state["clusters"][name] |= {"status": "DELETE_IN_PROGRESS", "polls": state["play"]["polls"]}
    return 0, {"cluster": {"clusterName": name, "clusterStatus": "DELETE_IN_PROGRESS"}}


def _events(state: dict[str, Any], options: dict[str, str]) -> tuple[int, dict[str, Any]]:
    name = options["--cluster-name"]
    if name not in state["clusters"]:
        return _describe(state, options)
    rows = [
        {"logicalResourceId": one, "resourceStatus": status, "resourceStatusReason": why}
        for one, status, why in state["clusters"][name]["events"]
    ]
    return 0, {"events": list(reversed(rows))}


def _fleet(state: dict[str, Any], options: dict[str, str]) -> tuple[int, dict[str, Any]]:
    name = options["--cluster-name"]
    if name not in state["clusters"]:
        return _describe(state, options)
    told = "STOPPING" if options["--status"] == "STOP_REQUESTED" else "RUNNING"
    state["clusters"][name]["fleet"] = told
    return 0, {"status": options["--status"]}


_VERBS = {
    "create-cluster": _create,
    "describe-cluster": _describe,
    "delete-cluster": _delete,
    "get-cluster-stack-events": _events,
    "update-compute-fleet": _fleet,
    "update-cluster": _update,
    "version": lambda state, options: (0, {"version": VERSION}),
}

if __name__ == "__main__":
    exit_code, answer = StandIn(Path(os.environ[FOLDER])).answer(sys.argv[1:])
    print(json.dumps(answer))
    sys.exit(exit_code)
