"""The permissions that making, watching and taking down one cluster needs, and no others.

After ParallelCluster's own policies (cloudformation/policies/parallelcluster-policies.yaml of its
repository), with names of this cluster where an action can be held to a name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kitae.cluster.names import Names
from kitae.cluster.policy_rows import ROWS, Row
from kitae.cluster.schema import ClusterFile

_OF_STACK = 24
LONGEST = 6144
"""Characters of a managed policy, blanks not counted."""
_ENDING = re.compile(
    r":(Delete|Terminate|Remove|Detach|Release|Disassociate|Revoke|Describe|Get|List|Untag|Change|Invoke|deleteMetric)"
)


@dataclass(frozen=True)
class Scope:
    """Whose cluster, and where."""

    name: str
    region: str
    account: str = "*"
    """Number of the account; `*`: any in which the policy is."""

    @classmethod
    def of(cls, file: ClusterFile, account: str = "*") -> Scope:
        """The scope of a cluster file."""
        return cls(file.name, file.region, account)


def statements(scope: Scope, rows: Iterable[Row] = ROWS) -> list[dict[str, Any]]:
    """Statements of a policy for one cluster."""
    return [_statement(scope, row) for row in rows]


def ending_statements(scope: Scope) -> list[dict[str, Any]]:
    """Those for taking a cluster down: what the dead man's switch may do."""
    ending = [
        Row(row.sid, _only_ending(row.actions), row.resources, row.condition) for row in ROWS if row.ends
    ]
    return statements(scope, [row for row in ending if row.actions])


def policies(scope: Scope) -> list[dict[str, Any]]:
    """Documents, each short enough for one managed policy."""
    found: list[list[dict[str, Any]]] = [[]]
    for one in statements(scope):
        if found[-1] and _length(document([*found[-1], one])) > LONGEST:
            found.append([])
        found[-1].append(one)
    return [document(part) for part in found]


def document(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """A policy of these statements."""
    return {"Version": "2012-10-17", "Statement": parts}


def allows(policy: Iterable[dict[str, Any]], action: str) -> bool:
    """Whether some statement names an action, such as `ec2:RunInstances`; resources are not looked at."""
    patterns = [pattern for one in policy for pattern in one["Action"]]
    return any(re.fullmatch(_regex(pattern), action, re.IGNORECASE) for pattern in patterns)


def _regex(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", ".*")


def _only_ending(actions: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(action for action in actions if _ENDING.search(action))


def _statement(scope: Scope, row: Row) -> dict[str, Any]:
    names = Names(scope.name)
    words = {
        "name": scope.name,
        "region": scope.region,
        "account": scope.account,
        "bucket": names.bucket(scope.account, scope.region),
        "switch": names.switch_stack,
        "short": _short(scope.name),
    }
    condition = {"Condition": _filled(row.condition, words)} if row.condition else {}
    return {
        "Sid": row.sid,
        "Effect": "Allow",
        "Action": list(row.actions),
        "Resource": [one.format(**words) for one in row.resources],
        **condition,
    }


def _short(stack: str) -> str:
    """How names begin that CloudFormation makes for roles: of a long stack's name they have a part."""
    return f"{stack}-" if len(stack) < _OF_STACK else stack[:_OF_STACK]


def _filled(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(below, words) for key, below in value.items()}
    return [_filled(one, words) for one in value] if isinstance(value, tuple) else value.format(**words)


def _length(policy: dict[str, Any]) -> int:
    return len(json.dumps(policy, separators=(",", ":")))
