"""Decides as IAM does whether policies of an identity allow a request. moto does not.

After https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html: what no
statement allows is denied, and an explicit denial wins. Each resource of a request must be allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Any

Statement = Mapping[str, Any]


@dataclass(frozen=True)
class Request:
    """What somebody wants to do."""

    action: str
    resources: tuple[str, ...] = ("*",)
    """ARNs; `*` for actions that are of no resource."""
    context: Mapping[str, str] = field(default_factory=dict)


def denied(statements: Iterable[Statement], request: Request) -> list[str]:
    """Resources of a request that the statements do not allow it on."""
    own = [one for one in statements if _of_action(one, request.action) and _holds(one, request.context)]
    allowing = [one for one in own if one["Effect"] == "Allow"]
    denying = [one for one in own if one["Effect"] == "Deny"]
    return [
        resource
        for resource in request.resources
        if not any(_of_resource(one, resource) for one in allowing)
        or any(_of_resource(one, resource) for one in denying)
    ]


def refused(statements: list[Statement], requests: Iterable[Request]) -> set[tuple[str, str]]:
    """Actions and resources of requests that are not allowed."""
    return {(one.action, resource) for one in requests for resource in denied(statements, one)}


def _of_action(statement: Statement, action: str) -> bool:
    if "NotAction" in statement:
        return not any(_like(one.lower(), action.lower()) for one in _list(statement["NotAction"]))
    return any(_like(one.lower(), action.lower()) for one in _list(statement["Action"]))


def _of_resource(statement: Statement, resource: str) -> bool:
    if "NotResource" in statement:
        return not any(_like(one, resource) for one in _list(statement["NotResource"]))
    return any(_like(one, resource) for one in _list(statement["Resource"]))


def _holds(statement: Statement, context: Mapping[str, str]) -> bool:
    """All operators and all keys; of each key some value."""
    return all(
        _key_holds(operator, key, _list(values), context)
        for operator, keys in statement.get("Condition", {}).items()
        for key, values in keys.items()
    )


def _key_holds(operator: str, key: str, values: list[str], context: Mapping[str, str]) -> bool:
    name = operator.removesuffix("IfExists")
    found = {one.lower(): value for one, value in context.items()}.get(key.lower())
    if found is None:
        return operator.endswith("IfExists") or name.startswith("StringNot")
    return _OPERATORS[name](values, found)


_OPERATORS: Mapping[str, Callable[[list[str], str], bool]] = {
    "StringEquals": lambda values, found: found in values,
    "StringNotEquals": lambda values, found: found not in values,
    "StringLike": lambda values, found: any(_like(one, found) for one in values),
    "StringNotLike": lambda values, found: not any(_like(one, found) for one in values),
    "ArnEquals": lambda values, found: any(_like(one, found) for one in values),
    "ArnLike": lambda values, found: any(_like(one, found) for one in values),
    "Bool": lambda values, found: found.lower() in [one.lower() for one in values],
}


def _like(pattern: str, text: str) -> bool:
    # IAM knows only * and ?.
    return re.fullmatch(translate(pattern.replace("[", "[[]")), text) is not None


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
