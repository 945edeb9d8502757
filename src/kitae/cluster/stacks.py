"""CloudFormation stacks: made or left as they are, waited for, deleted until they are gone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kitae.cluster.aws import Account, error_code, is_client_error, plainly
from kitae.errors import ClusterError

PATIENCE_S = 3600.0
_PAUSE_S = 5.0
_MISSING = "ValidationError"
_BROKEN = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED", "DELETE_IN_PROGRESS")
_STANDS = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE")
_UNCHANGED = "No updates are to be performed"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Stack:
    """A stack as AWS describes it."""

    name: str
    status: str
    outputs: Mapping[str, str]
    reason: str = ""
    created: datetime | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


def find_stack(account: Account, name: str) -> Stack | None:
    """The stack of that name; None where there is none, or none any more."""
    from botocore.exceptions import ClientError

    with plainly(f"looking for the stack {name}"):
        try:
            found = account.client("cloudformation").describe_stacks(StackName=name)["Stacks"][0]
        except ClientError as error:
            if error_code(error) == _MISSING:
                return None
            raise
    if found["StackStatus"] == "DELETE_COMPLETE":
        return None
    return stack_of(found)


def stack_of(found: Mapping[str, Any]) -> Stack:
    """A stack of AWS's description."""
    return Stack(
        str(found["StackName"]),
        str(found["StackStatus"]),
        {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", [])},
        str(found.get("StackStatusReason", "")),
        found.get("CreationTime"),
        {one["Key"]: one["Value"] for one in found.get("Tags", [])},
    )


def make_stack(
    account: Account,
    name: str,
    template: Mapping[str, Any],
    tags: Mapping[str, str],
    say: Say,
    parameters: Mapping[str, str] | None = None,
) -> Stack:
    """Make a stack and wait until it stands; one that stands already is taken as it is.

    Raises `ClusterError` with the first thing that failed in it.
    """
    found = find_stack(account, name)
    if found is not None and found.status in _BROKEN:
        say(f"{name}: what is left of another one ({found.status}) goes first")
        delete_stack(account, name, say)
        found = None
    if found is None:
        say(f"{name}: is made")
        with plainly(f"making the stack {name}"):
            account.client("cloudformation").create_stack(
                StackName=name,
                TemplateBody=json.dumps(template),
                Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in (parameters or {}).items()],
                Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
                Capabilities=["CAPABILITY_NAMED_IAM"],
            )
    made = _wait(account, name, lambda stack: stack is not None and not stack.status.endswith("_IN_PROGRESS"))
    assert made is not None
    if made.status not in _STANDS:
        raise ClusterError(
            f"the stack {name} could not be made: {first_failure(account, name) or made.reason}"
        )
    return made


def change_stack(
    account: Account,
    name: str,
    template: Mapping[str, Any],
    tags: Mapping[str, str],
    parameters: Sequence[str] = (),
) -> Stack:
    """Make a stack that stands what the template says, and wait; `parameters` keep their values.

    Raises `ClusterError` with the first thing that failed; the stack is then as it was before.
    """
    from botocore.exceptions import ClientError

    _wait(account, name, _settled)
    with plainly(f"changing the stack {name}"):
        try:
            account.client("cloudformation").update_stack(
                StackName=name,
                TemplateBody=json.dumps(template),
                Parameters=[{"ParameterKey": one, "UsePreviousValue": True} for one in parameters],
                Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
                Capabilities=["CAPABILITY_NAMED_IAM"],
            )
        except ClientError as error:
            if _UNCHANGED not in str(error):
                raise
    changed = _wait(account, name, _settled)
    if changed is None or changed.status not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
        why = first_failure(account, name) or "no reason is given"
        raise ClusterError(f"the stack {name} could not be changed, and is as it was: {why}")
    return changed


def _settled(stack: Stack | None) -> bool:
    return stack is None or not stack.status.endswith("_IN_PROGRESS")


def delete_stack(account: Account, name: str, say: Say, attempts: int = 3) -> None:
    """Delete a stack until it is gone. Raises `ClusterError` with what refuses to go."""
    for attempt in range(1, attempts + 1):
        if find_stack(account, name) is None:
            return
        say(
            f"{name}: is deleted"
            if attempt == 1
            else f"{name}: is deleted again, attempt {attempt} of {attempts}"
        )
        try:
            with plainly(f"deleting the stack {name}"):
                account.client("cloudformation").delete_stack(StackName=name)
        except ClusterError as error:
            if attempt == attempts or not is_client_error(error.__cause__):
                raise
            continue
        left = _wait(account, name, lambda stack: stack is None or stack.status == "DELETE_FAILED")
        if left is None:
            return
    raise ClusterError(
        f"the stack {name} does not go: {first_failure(account, name) or 'no reason is given'}"
    )


def first_failure(account: Account, name: str) -> str:
    """The first real error of a stack's last change; not that others were cancelled because of it."""
    events = account.pages("cloudformation", "describe_stack_events", "StackEvents", StackName=name)
    for event in reversed(events):
        reason = event.get("ResourceStatusReason", "")
        if event["ResourceStatus"].endswith("_FAILED") and "cancelled" not in reason.lower():
            return f"{event['LogicalResourceId']} ({event['ResourceType']}): {reason}"
    return ""


def _wait(account: Account, name: str, done: Callable[[Stack | None], bool]) -> Stack | None:
    end = time.monotonic() + PATIENCE_S
    while True:
        found = find_stack(account, name)
        if done(found):
            return found
        if time.monotonic() > end:
            raise ClusterError(
                f"the stack {name} has been {found.status if found else 'missing'} for {PATIENCE_S / 60:.0f} "
                "minutes; look at its events, and run the same command again"
            )
        time.sleep(_PAUSE_S)
