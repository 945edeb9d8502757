"""A change of what kitae would write, carried over to what a cluster has.

A cluster may have been made by another kitae, with other scripts and pins. What the change does not touch
stays as the cluster has it, else nodes would be replaced, or the change refused, for nothing.
"""

from __future__ import annotations

from typing import Any

_MISSING: Any = object()


def carried(actual: Any, base: Any, target: Any) -> Any:
    """`actual` with all by which `target` differs from `base`."""
    if base == target:
        return actual
    if all(isinstance(one, dict) for one in (actual, base, target)):
        return _mappings(actual, base, target)
    if all(_is_named(one) for one in (actual, base, target)):
        named = [{row["Name"]: row for row in one} for one in (actual, base, target)]
        return list(_mappings(*named).values())
    return target


def _mappings(actual: dict[str, Any], base: dict[str, Any], target: dict[str, Any]) -> dict[str, Any]:
    keys = dict.fromkeys([*actual, *target])
    found = {key: _entry(key, actual, base, target) for key in keys}
    return {key: value for key, value in found.items() if value is not _MISSING}


def _entry(key: str, actual: dict[str, Any], base: dict[str, Any], target: dict[str, Any]) -> Any:
    there, before, after = (one.get(key, _MISSING) for one in (actual, base, target))
    return there if before == after else carried(there, before, after)


def _is_named(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) and "Name" in one for one in value)
