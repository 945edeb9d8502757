"""ParallelCluster's update policies, as far as configurations of kitae go: played after release 3.16.1.

A test holds them against the real ones. Names of policies are those of `pcluster.config.update_policy`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_QUEUE = r"Scheduling\.SlurmQueues\[[^]]+\]"
_RESIZE, _DRAIN = "RESIZE_UPDATE_STRATEGY_ON_REMOVE", "QUEUE_UPDATE_STRATEGY"
_FREE = ("SUPPORTED", "SUPPORTED_UNLESS_ADC")
_POLICIES = {
    r"Scheduling\.SlurmQueues|" + _QUEUE + r"\.ComputeResources": _RESIZE,
    _QUEUE + r"\.ComputeResources\[[^]]+\]\.(Min|Max)Count": _RESIZE,
    _QUEUE + r"\.Networking\.SubnetIds": "MANAGED_FSX",
    _QUEUE + r"\.Networking\.PlacementGroup\.Enabled": "MANAGED_PLACEMENT_GROUP",
    _QUEUE + r"\.(Iam|Networking\.SecurityGroups).*": "SUPPORTED",
    _QUEUE + r"\..*": _DRAIN,
    r"SharedStorage|SharedStorage\[[^]]+\]\.MountDir": "SHARED_STORAGE_UPDATE_POLICY",
    r"SharedStorage\[[^]]+\]\.FsxLustreSettings\.(DeletionPolicy|DataRepositoryAssociations)": "SUPPORTED",
    r"HeadNode\.(Iam|Networking\.SecurityGroups).*": "SUPPORTED",
    r"Scheduling\.SlurmSettings\.ScaledownIdletime": "COMPUTE_FLEET_STOP",
    r"Scheduling\.ScalingStrategy": "SUPPORTED",
    r"Tags.*": "SUPPORTED_UNLESS_ADC",
    r".*": "UNSUPPORTED",
}
_KEYS = {"SlurmQueues": "Name", "ComputeResources": "Name", "SharedStorage": "Name", "Tags": "Key"}
_KEYS |= {"S3Access": "BucketName", "AdditionalIamPolicies": "Policy", "DataRepositoryAssociations": "Name"}


def rows_of(old: Any, new: Any) -> list[dict[str, Any]]:
    """Rows as `kitae.cluster.update_program` prints them."""
    found = []
    for parameter, before, after in _changes(old, new, ""):
        policy = next(name for pattern, name in _POLICIES.items() if re.fullmatch(pattern, parameter))
        running, stopped = (_allowed(policy, parameter, before, after, old, new, on) for on in (True, False))
        why = f"it is {policy}"
        found.append(
            {
                "parameter": parameter,
                "old": before,
                "new": after,
                "policy": policy,
                "allowed": running,
                "why": "" if running else why,
                "allowed_stopped": stopped,
                "why_stopped": "" if stopped else why,
            }
        )
    return found


def _changes(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    for key in dict.fromkeys([*(old or {}), *(new or {})]):
        before, after = (old or {}).get(key), (new or {}).get(key)
        where = f"{path}.{key}" if path else key
        if before == after:
            continue
        if key in _KEYS and isinstance(before or after, list):
            yield from _entries(before or [], after or [], where, _KEYS[key])
        elif isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _changes(before, after, where)
        else:
            yield where, before, after


def _entries(old: list[Any], new: list[Any], where: str, key: str) -> Iterator[tuple[str, Any, Any]]:
    before, after = ({row[key]: row for row in some} for some in (old, new))
    for name, row in after.items():
        if name in before:
            yield from _changes(before[name], row, f"{where}[{name}]")
        else:
            yield where, None, row
    for name, row in before.items():
        if name not in after:
            yield where, row, None


def _allowed(policy: str, parameter: str, before: Any, after: Any, old: Any, new: Any, running: bool) -> bool:
    if policy == "UNSUPPORTED":
        return False
    if policy == "MANAGED_FSX" and old.get("SharedStorage") and new.get("SharedStorage"):
        return False
    if parameter.endswith("MountDir"):
        return not running  # the real policy raises where a fleet runs
    if not running or policy in (*_FREE, _DRAIN, "MANAGED_FSX", "SHARED_STORAGE_UPDATE_POLICY"):
        return True
    if policy == "MANAGED_PLACEMENT_GROUP":
        return not before
    if policy != _RESIZE:
        return False
    if parameter.endswith("Count"):
        return _grows(parameter, before, after, old, new)
    return before is None


def _grows(parameter: str, before: int, after: int, old: Any, new: Any) -> bool:
    if parameter.endswith("MaxCount"):
        return after >= before
    most = parameter.replace("MinCount", "MaxCount")
    larger = [(b, a) for where, b, a in _changes(old, new, "") if where == most]
    return bool(larger) and larger[0][1] - larger[0][0] >= after - before
