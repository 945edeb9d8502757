"""Run by the interpreter of ParallelCluster's environment: what its update policies say of configurations.

Reads `{"name", "old", "targets": {key: configuration}}` and prints, by key, what it finds different, with the
policy's name and whether the change is allowed while the fleet runs, and while it is stopped. No account is
asked. Nothing of kitae can be imported here.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

from pcluster.config.config_patch import ConfigPatch

FAILS = "ParallelCluster itself fails on this change"


class Cluster:
    """What policies ask of a cluster."""

    head_node_instance = SimpleNamespace(state="running")

    def __init__(self, name: str, *, running: bool) -> None:
        self.name = self.stack_name = name
        self.running = running

    def has_running_capacity(self, **_: Any) -> bool:
        """Whether the fleet runs."""
        return self.running

    def has_running_login_nodes(self, **_: Any) -> bool:
        """There are none in a cluster of kitae."""
        return False


def checked(name: str, old: Any, new: Any, *, running: bool) -> list[dict[str, Any]]:
    """Changes that ParallelCluster would tell, but those that it ignores."""
    patch = ConfigPatch(Cluster(name, running=running), old, new)
    found = []
    for change in patch.changes:
        result, reason, action, shown = judged(change, patch)
        if shown or result != "SUCCEEDED":
            row = {
                "parameter": ConfigPatch.build_config_param_path(change.path, change.key),
                "old": change.old_value,
                "new": change.new_value,
                "policy": change.update_policy.name,
                "allowed": result == "SUCCEEDED",
                "why": " ".join(str(one) for one in (reason, action) if one and one != "-"),
            }
            found.append(row)
    return found


def judged(change: Any, patch: ConfigPatch) -> tuple[str, str, str, bool]:
    """A policy's judgement; some of 3.16.1 fail on some changes, which then cannot be made either."""
    try:
        result, reason, action, shown = change.update_policy.check(change, patch)
    except Exception as error:  # whatever a policy of ParallelCluster raises
        return "FAILED", f"{FAILS}: {error}", "", True
    return result.value, reason, action, shown


def both(name: str, old: Any, new: Any) -> list[dict[str, Any]]:
    """With the fleet running and stopped, row by row."""
    stopped = {row["parameter"] + repr(row["old"]): row for row in checked(name, old, new, running=False)}
    rows = checked(name, old, new, running=True)
    for row in rows:
        other = stopped.get(row["parameter"] + repr(row["old"]))
        row["allowed_stopped"] = other is None or other["allowed"]
        row["why_stopped"] = "" if other is None else other["why"]
    return rows


def main() -> None:
    """Answer what comes in."""
    asked = json.load(sys.stdin)
    found = {key: both(asked["name"], asked["old"], new) for key, new in asked["targets"].items()}
    print(json.dumps(found))


main()
