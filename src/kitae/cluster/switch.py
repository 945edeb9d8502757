"""The dead man's switch: a schedule of AWS that takes the cluster down, whoever is gone.

It is one stack of two roles, a state machine and a schedule. From the end of the cluster on, every quarter
of an hour the machine makes one pass: all the cluster's instances are terminated, so that they stop to
bill; then the cluster's stack is deleted; once it is gone, the network's; once that is gone, the bucket;
then the schedule. A pass keeps no state, so one that fails is made up by the next. Nothing of it needs this
machine or the head node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from kitae.cluster.names import ENGINE_TAG, Names
from kitae.cluster.policy import Scope, document, ending_statements

PASS_MINUTES = 15
PASSES_DAYS = 14
"""So long it goes on where something refuses to be deleted."""
_SDK = "arn:aws:states:::aws-sdk"
_ALIVE = ["pending", "running", "stopping", "stopped"]
_AT_ONCE = 5
"""Instances found at a time: what is known of many with many interfaces does not fit a state (256 KiB)."""
_OBJECTS_AT_ONCE = 200
_STATUS = {"Status.$": "$.Stacks[0].StackStatus"}
State = dict[str, Any]


def switch_template(
    scope: Scope, until: datetime, tags: dict[str, str], told: Mapping[str, str] | None = None
) -> State:
    """The stack's template; what is `told` is kept among its outputs, for whoever asks the account."""
    name = Names(scope.name).switch_stack
    tag_list = [{"Key": key, "Value": value} for key, value in tags.items()]
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Deletes the cluster {scope.name} at its end, made by kitae",
        "Resources": {
            "MachineRole": _role(f"{name}-machine-{scope.region}", "states", _ending(scope), tag_list),
            "ScheduleRole": _role(f"{name}-schedule-{scope.region}", "scheduler", [_start(scope)], tag_list),
            "Machine": {
                "Type": "AWS::StepFunctions::StateMachine",
                "DependsOn": "MachineRole",
                "Properties": {
                    "StateMachineName": name,
                    "RoleArn": {"Fn::GetAtt": ["MachineRole", "Arn"]},
                    "DefinitionString": json.dumps(one_pass(scope)),
                    "Tags": tag_list,
                },
            },
            "Schedule": {
                "Type": "AWS::Scheduler::Schedule",
                "Properties": {
                    "Name": name,
                    "ScheduleExpression": f"rate({PASS_MINUTES} minutes)",
                    "StartDate": instant(until),
                    "EndDate": instant(until + timedelta(days=PASSES_DAYS)),
                    "FlexibleTimeWindow": {"Mode": "OFF"},
                    "Target": {
                        "Arn": {"Ref": "Machine"},
                        "RoleArn": {"Fn::GetAtt": ["ScheduleRole", "Arn"]},
                        "Input": "{}",
                    },
                },
            },
        },
        "Outputs": {
            "Machine": {"Value": {"Ref": "Machine"}},
            "Until": {"Value": instant(until)},
            **{key: {"Value": value} for key, value in (told or {}).items()},
        },
    }


def one_pass(scope: Scope) -> State:
    """The state machine, in the Amazon States Language (https://states-language.net/spec.html)."""
    names = Names(scope.name)
    states = {
        **_instances_end(scope.name),
        **_stack_ends("cluster", names.cluster_stack, "Delete network"),
        **_stack_ends("network", names.network_stack, "Find bucket"),
        **_bucket_ends(names.bucket(scope.account, scope.region)),
        "Rest": _call("scheduler:deleteSchedule", {"Name": names.switch_stack}, "Done", failed="Done"),
        "Done": {"Type": "Succeed", "OutputPath": None},
        "Next time": {"Type": "Succeed", "OutputPath": None},
    }
    return {"Comment": f"One pass at ending {scope.name}", "StartAt": "Find instances", "States": states}


def _instances_end(cluster: str) -> State:
    filters = [
        {"Name": f"tag:{ENGINE_TAG}", "Values": [cluster]},
        {"Name": "instance-state-name", "Values": _ALIVE},
    ]
    return {
        "Find instances": _call(
            "ec2:describeInstances",
            {"MaxResults": _AT_ONCE, "Filters": filters},
            "Any instances",
            failed="Delete cluster",
            result={"Ids.$": "$.Reservations[*].Instances[*].InstanceId"},
        ),
        "Any instances": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.result.Ids[0]", "IsPresent": True, "Next": "Terminate"}],
            "Default": "Delete cluster",
        },
        "Terminate": _call(
            "ec2:terminateInstances",
            {"InstanceIds.$": "$.result.Ids"},
            "Find instances",
            failed="Delete cluster",
        ),
    }


def _stack_ends(what: str, stack: str, following: str) -> State:
    """Its deletion begins, and what follows comes only once it is gone."""
    return {
        f"Delete {what}": _call("cloudformation:deleteStack", {"StackName": stack}, f"Is the {what} there"),
        f"Is the {what} there": _call(
            "cloudformation:describeStacks",
            {"StackName": stack},
            f"Is the {what} only remembered",
            failed=following,
            result=_STATUS,
        ),
        f"Is the {what} only remembered": _gone(following),
    }


def _bucket_ends(bucket: str) -> State:
    return {
        "Find bucket": _call("s3:headBucket", {"Bucket": bucket}, "Find objects", failed="Rest"),
        # An empty one has no list to pick.
        "Find objects": _call(
            "s3:listObjectVersions",
            {"Bucket": bucket, "MaxKeys": _OBJECTS_AT_ONCE},
            "Delete objects",
            failed="Delete bucket",
            result={"Versions.$": "$.Versions"},
        ),
        "Delete objects": _each_version(bucket),
        "Delete bucket": _call("s3:deleteBucket", {"Bucket": bucket}, "Rest", failed="Next time"),
    }


def _call(
    action: str,
    parameters: State,
    following: str,
    *,
    failed: str = "Next time",
    result: dict[str, str] | None = None,
) -> State:
    """A state that calls AWS; what `result` picks of the answer goes on as `$.result`."""
    kept = {"ResultPath": None} if result is None else {"ResultSelector": result, "ResultPath": "$.result"}
    return {
        "Type": "Task",
        "Resource": f"{_SDK}:{action}",
        "Parameters": parameters,
        **kept,
        "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": failed}],
        "Next": following,
    }


def _gone(following: str) -> State:
    """Deleted stacks may be described for a while; any other state means: not yet."""
    done = {"Variable": "$.result.Status", "StringEquals": "DELETE_COMPLETE", "Next": following}
    return {"Type": "Choice", "Choices": [done], "Default": "Next time"}


def _each_version(bucket: str) -> State:
    """Some hundred versions in a pass; those of scripts and templates are a few."""
    delete = _call(
        "s3:deleteObject",
        {"Bucket": bucket, "Key.$": "$.Key", "VersionId.$": "$.VersionId"},
        "",
    )
    step = {key: value for key, value in delete.items() if key not in ("Next", "Catch")} | {"End": True}
    return {
        "Type": "Map",
        "ItemsPath": "$.result.Versions",
        "ItemProcessor": {"StartAt": "Delete one", "States": {"Delete one": step}},
        "ResultPath": None,
        "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "Delete bucket"}],
        "Next": "Delete bucket",
    }


def _role(name: str, service: str, allowed: list[State], tags: list[dict[str, str]]) -> State:
    trust = {
        "Effect": "Allow",
        "Principal": {"Service": f"{service}.amazonaws.com"},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}},
    }
    return {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "RoleName": name,
            "AssumeRolePolicyDocument": document([trust]),
            "Policies": [{"PolicyName": "ending", "PolicyDocument": document(allowed)}],
            "Tags": tags,
        },
    }


def _ending(scope: Scope) -> list[State]:
    return ending_statements(scope)


def _start(scope: Scope) -> State:
    machine = f"arn:aws:states:{scope.region}:{scope.account}:stateMachine:{Names(scope.name).switch_stack}"
    return {"Sid": "Start", "Effect": "Allow", "Action": ["states:StartExecution"], "Resource": [machine]}


def instant(when: datetime) -> str:
    """A time as AWS's schedules take it."""
    return f"{when.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
