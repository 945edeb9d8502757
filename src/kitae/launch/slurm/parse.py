"""What Slurm's programs say of jobs and nodes, in the forms that its releases have.

22.05 writes plain values (`"job_state": "RUNNING"`, `"node_count": 2`) and nodes with `state_flags`. From
23.11 on, as ParallelCluster ships, states are lists and numbers are objects with `set`, `infinite` and
`number`; its sinfo has a list of groups. The columns that squeue and sinfo print by a format stayed the same.
Sources: squeue(1), sinfo(1), the data_parser plugins v0.0.38 and v0.0.40.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

ENDED = (
    *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "BOOT_FAIL"),
    *("DEADLINE", "REVOKED"),
)
"""States of jobs that will not run any more."""
_BAD = {
    *("DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "NOT_RESPONDING", "UNKNOWN"),
    *("POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "MAINT", "REBOOT"),
}
_MARKS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINT",
    "@": "REBOOT",
    "^": "REBOOT",
    "-": "PLANNED",
}
"""What sinfo puts behind a state (sinfo(1), node state codes)."""

JOB_COLUMNS = "%i|%T|%r|%N|%D|%V|%S|%j"
"""For `squeue --format`: number, state, reason, nodes, their count, times of submission and start, name."""
NODE_COLUMNS = "%N|%T|%E"
"""For `sinfo --format`: name, state, reason."""


@dataclass(frozen=True)
class JobState:
    """A job at one moment."""

    number: int
    name: str
    state: str
    """PENDING, CONFIGURING, RUNNING, COMPLETING, or one of `ENDED`."""
    reason: str
    """Why it waits."""
    nodes: str
    """Those that it has, as Slurm writes lists."""
    node_count: int
    submitted: float
    """Seconds since 1970; 0 where unknown."""
    started: float
    """When it began, or is to begin."""

    @property
    def ended(self) -> bool:
        """Whether it will not run any more."""
        return self.state in ENDED


@dataclass(frozen=True)
class NodeState:
    """A node at one moment."""

    name: str
    states: frozenset[str]
    """Such as IDLE, DOWN, DRAIN, NOT_RESPONDING."""
    reason: str

    @property
    def bad(self) -> bool:
        """Whether nothing should be started there."""
        return not self.states.isdisjoint(_BAD)

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason not in ("", "none") else ""
        return f"{'+'.join(sorted(self.states)).lower()}{why}"


def jobs_of_json(text: str) -> list[JobState]:
    """What `squeue --json` lists. Raises ValueError when it is something else."""
    return [_job(one) for one in _list(text, "jobs")]


def _job(values: Mapping[str, Any]) -> JobState:
    return JobState(
        number=int(_number(values["job_id"])),
        name=str(values.get("name") or ""),
        state=_first_state(values["job_state"]),
        reason=str(values.get("state_reason") or ""),
        nodes=str(values.get("nodes") or ""),
        node_count=int(_number(values.get("node_count"))),
        submitted=_number(values.get("submit_time")),
        started=_number(values.get("start_time")),
    )


def _first_state(value: str | list[str]) -> str:
    """One word for a state: what a job goes through hides what it was, as in squeue's own column."""
    states = [value] if isinstance(value, str) else list(value)
    passing = [one for one in states if one in ("COMPLETING", "CONFIGURING", "REQUEUED")]
    return (passing or states or ["UNKNOWN"])[0].upper()


def _number(value: Any) -> float:
    """A number in either form; 0 for one that is not set or has no limit."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") and not value.get("infinite") else 0
    return float(value or 0)


def jobs_of_text(text: str) -> list[JobState]:
    """What `squeue --noheader --format=JOB_COLUMNS` prints; lines that are no job are passed over."""
    rows = [line.split("|", 7) for line in text.splitlines()]
    return [
        JobState(int(number), name, state, reason, nodes, int(count), _time(submitted), _time(started))
        for number, state, reason, nodes, count, submitted, started, name in (r for r in rows if len(r) == 8)
        if number.isdecimal()
    ]


def _time(text: str) -> float:
    """Seconds since 1970 of a time of this machine's zone; 0 for N/A."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def nodes_of_json(text: str) -> list[NodeState]:
    """What `sinfo --json` or `scontrol show nodes --json` lists. Raises ValueError for something else."""
    values = json.loads(text)
    if isinstance(values, dict) and "sinfo" in values:
        return [node for group in values["sinfo"] for node in _group(group)]
    return [
        NodeState(one["name"], _states(one["state"], one.get("state_flags")), _reason(one.get("reason")))
        for one in _list(text, "nodes")
    ]


def _group(group: Mapping[str, Any]) -> list[NodeState]:
    states, reason = _states(group["node"]["state"], ()), _reason(group.get("reason"))
    return [NodeState(name, states, reason) for name in group["nodes"]["nodes"]]


def _states(value: str | list[str], flags: list[str] | tuple[str, ...] | None) -> frozenset[str]:
    states = [value] if isinstance(value, str) else value
    return frozenset(state.upper() for state in (*states, *(flags or ())))


def _reason(value: Any) -> str:
    return str(value.get("description", "") if isinstance(value, Mapping) else value or "")


def nodes_of_text(text: str) -> list[NodeState]:
    """What `sinfo --Node --noheader --format=NODE_COLUMNS` prints."""
    rows = (line.split("|", 2) for line in text.splitlines())
    return [
        NodeState(name.strip(), _marked(state.strip()), reason.strip())
        for name, state, reason in (row for row in rows if len(row) == 3)
    ]


def _marked(state: str) -> frozenset[str]:
    name = state.rstrip("".join(_MARKS))
    return frozenset([name.upper(), *(_MARKS[mark] for mark in state[len(name) :])])


def _list(text: str, key: str) -> list[Any]:
    values = json.loads(text)
    found = values.get(key) if isinstance(values, dict) else None
    if not isinstance(found, list):
        raise ValueError(f"no list of {key}")
    return found


def record_of(text: str) -> dict[str, str]:
    """The fields of one line of `scontrol show job --oneliner`, or of a node; of values the first word."""
    return dict(word.split("=", 1) for word in text.split() if "=" in word)
