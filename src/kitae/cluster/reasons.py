"""Why a cluster could not be made: the first real error of its stacks, nested ones too, and of its nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kitae.cluster.aws import Account
from kitae.cluster.logs import BOOTSTRAP, LOGS, LogLine, lines, streams_of
from kitae.cluster.troubles import words_for
from kitae.errors import ClusterError

_STACK = "AWS::CloudFormation::Stack"
_DEEPEST = 5
_LOGS = (*LOGS[BOOTSTRAP], "slurm_resume", "clustermgtd")
# What only says that something else failed.
_ECHOES = re.compile(r"cancelled|following resource\(s\) failed|Embedded stack .* was not successfully")
# What sends one to the nodes' logs.
_OF_NODES = re.compile(
    r"WaitCondition|resource signal|bootstrap|chef|OnNode|PROTECTED|static node", re.IGNORECASE
)
_ERROR = re.compile(r"\b(?:ERROR|FATAL|FAILED|Error executing|WARNING - Node bootstrap error)\b")


@dataclass(frozen=True)
class Failure:
    """The first thing that failed in a stack."""

    resource: str
    kind: str
    reason: str

    def line(self) -> str:
        """As it is told."""
        return f"{self.resource} ({self.kind}): {self.reason}"


def first_failure(account: Account, stack: str, depth: int = 0) -> Failure | None:
    """The first real failure of a stack, looked for in nested stacks where it lies there."""
    events = account.pages("cloudformation", "describe_stack_events", "StackEvents", StackName=stack)
    found = None
    for event in reversed(events):
        if not event["ResourceStatus"].endswith("_FAILED"):
            continue
        inner = _inner(account, event, depth)
        if inner is not None:
            return inner
        reason = " ".join(event.get("ResourceStatusReason", "").split())
        if found is None and reason and _ECHOES.search(reason) is None:
            found = Failure(event["LogicalResourceId"], event["ResourceType"], reason)
    return found


def _inner(account: Account, event: Any, depth: int) -> Failure | None:
    inside = event.get("PhysicalResourceId") or ""
    nested = event["ResourceType"] == _STACK and inside and inside != event.get("StackId")
    return first_failure(account, inside, depth + 1) if nested and depth < _DEEPEST else None


def node_error(account: Account, name: str) -> str | None:
    """The first line of the nodes' logs that tells a known trouble, else the first error; in plain words."""
    streams = [one for one in streams_of(account, name) if one.log in _LOGS]
    told = list(lines(account, streams))
    for line in told:
        words = words_for(line.text)
        if words is not None:
            return f"{words} ({_shown(line)})"
    return next((_shown(line) for line in told if _ERROR.search(line.text)), None)


def _shown(line: LogLine) -> str:
    return f"{line.stream.log}: {' '.join(line.text.split())[:300]}"


def why(account: Account, name: str) -> str:
    """All that can be told of why a cluster's stack failed; empty where AWS tells nothing."""
    return "; ".join(_told(account, name))


def _told(account: Account, name: str) -> Iterator[str]:
    try:
        failure = first_failure(account, name)
        if failure is None:
            return
        yield failure.line()
        words = words_for(failure.reason)
        of_nodes = _OF_NODES.search(failure.reason) is not None
        inside = node_error(account, name) if of_nodes else None
        if inside is not None:
            yield inside
        elif words is not None:
            yield words
    except ClusterError as error:
        yield f"more cannot be told: {error}"
