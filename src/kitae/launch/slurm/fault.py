"""Where an attempt failed, and whether it would do so again: read from what its nodes left behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitae.errors import KitaeError, TrainingError
from kitae.launch.failure import NodeLostError
from kitae.launch.node_end import NodeEnd


@dataclass(frozen=True)
class Fault:
    """The first failure of an attempt."""

    node: str
    """Where; empty when nobody can tell."""
    repeats: bool
    """Whether it lies in the recipe, its data or the disk, and not in a process or node."""


def fault_of(error: BaseException, nodes: Sequence[NodeEnd | None]) -> Fault:
    """What came first among all nodes; `nodes` are what each left, None for one that left nothing."""
    if isinstance(error, NodeLostError):
        return Fault(error.node, repeats=False)
    found = [node for node in nodes if node is not None]
    verdicts = [(node.verdict.at_ns, node.name) for node in found if node.verdict is not None]
    if verdicts:
        return Fault(min(verdicts)[1], repeats=False)
    failed = sorted((end.order, node.name, end) for node in found for end in node.ends if end.failed)
    if failed:
        _, name, end = failed[0]
        return Fault(name, repeats=end.outcome is not None and not end.outcome.lost_peer)
    # It failed outside the ranks: before them, or nothing was started at all.
    return Fault("", repeats=isinstance(error, KitaeError) and not isinstance(error, TrainingError))
