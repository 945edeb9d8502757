"""What to do when an attempt at a training has ended: the rules, without anything that acts.

| what ended it | then |
|---|---|
| it is complete | end |
| a signal before the time limit, a preemption | save, then queue again; does not count as a failure |
| somebody asked for its end (`scancel --batch --signal=USR2`) | save, then end |
| Slurm itself is ending the job: cancelled, or queued again | leave it to Slurm |
| an error that the same recipe meets again: a bad value, a full disk, a loss that is not finite | end |
| a process that died, got stuck or lost its peers, on nodes that are well | again, on the same nodes |
| the same on a node for the second time | queue again, without that node |
| a node that is down, drained or gone | queue again, without that node |
| any of the last three, or a stop before a single step was saved, `max_attempts` times | end |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

STRIKES = 2
"""Failures of processes on one node after which it is to blame, and not the processes."""

Asked = Literal["", "time limit", "stop"]
How = Literal["complete", "stopped", "failed"]
Action = Literal["end", "again", "requeue"]


@dataclass(frozen=True)
class Ended:
    """What is known of an attempt that has ended."""

    how: How
    why: str = ""
    """In words; empty for one that is complete."""
    asked: Asked = ""
    """What the batch job itself was asked for."""
    leaving: bool = False
    """Whether Slurm is ending the job by itself."""
    repeats: bool = False
    """Whether the same recipe would fail so again."""
    node: str = ""
    """Where it failed, when that is known."""
    bad_nodes: Mapping[str, str] = field(default_factory=dict)
    """Nodes of the job that Slurm would not start anything on -> what it says of them."""


@dataclass(frozen=True)
class Record:
    """What happened in the attempts before, and in this one."""

    failures: int
    """Attempts that failed."""
    strikes: Mapping[str, int]
    """Failures on each node."""


@dataclass(frozen=True)
class Move:
    """What to do now."""

    action: Action
    why: str
    without: Mapping[str, str] = field(default_factory=dict)
    """Nodes to leave out from now on -> why."""
    failed: bool = False
    """Whether the job ends as one that failed."""


def decide(ended: Ended, record: Record, max_attempts: int) -> Move:
    """The move that follows; `record` has this attempt in it."""
    if ended.how == "complete":
        return Move("end", "complete")
    if ended.asked == "stop" and ended.how == "stopped":
        return Move("end", "stopped as asked", failed=True)
    if ended.how == "failed" and ended.repeats:
        return Move("end", ended.why, failed=True)
    if ended.leaving:
        return Move("end", f"{ended.why}; Slurm ends the job (cancelled, or queued again)", failed=True)
    if record.failures >= max_attempts:
        given_up = f"{ended.why}; given up after {record.failures} attempts that failed (target.max_attempts)"
        return Move("end", given_up, failed=True)
    if ended.how == "stopped":
        why = "the time limit is near" if ended.asked else "stopped from outside (preempted?)"
        return Move("requeue", why, dict(ended.bad_nodes))
    without = dict(ended.bad_nodes) or _struck(ended, record)
    return Move("requeue" if without or ended.asked else "again", ended.why, without)


def _struck(ended: Ended, record: Record) -> dict[str, str]:
    count = record.strikes.get(ended.node, 0)
    return {ended.node: f"processes failed there {count} times"} if ended.node and count >= STRIKES else {}
