"""The check of a job's machines before they train."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kitae.errors import KitaeError, StoppedError
from kitae.launch.failure import NodeLostError, RankBugError
from kitae.launch.node import node_file
from kitae.launch.node_end import NodeEnd
from kitae.launch.nodecheck import Finding, NodeFaultError, findings
from kitae.launch.nodes import launch_nodes
from kitae.launch.order import Launch
from kitae.launch.outcome import Outcome
from kitae.launch.slurm.fault import fault_of
from kitae.recipe.target import TargetConfig
from kitae.stages.job import Job, Report
from kitae.storage.files import replace_file

ENTRY = "kitae.launch.probe:check_rank"
TIMEOUT_S = 60.0
"""How long ranks of the check may stand still; training ranks may have longer steps."""
_KNOWN = "slow-nodes.json"


def is_wanted(target: TargetConfig, nodes: int) -> bool:
    """Whether so many machines are tried first."""
    return target.exclusive and nodes > 1 if target.node_check == "auto" else target.node_check


def check_nodes(job: Job, launch: Launch, starter: Sequence[str]) -> None:
    """Try the machines that `launch` is to train on, where the recipe wants it.

    Raises `NodeFaultError` for one that is broken. For one that is slow, too, when the run meets it for the
    first time: another may take its place. Where none did, it is only told.
    """
    if not is_wanted(job.recipe.target, launch.nodes):
        return
    assert launch.attempt is not None
    folder = launch.attempt / "check"
    found = check_machines(replace(launch, attempt=folder, logs=folder, tp_size=1, title="check"), starter)
    if not found:
        job.report(f"node check: {launch.nodes} nodes are well")
        return
    _raise_or_tell(found, launch.names, job.run.path / "attempts" / _KNOWN, job.report)


def check_machines(launch: Launch, starter: Sequence[str], entry: str = ENTRY) -> list[Finding]:
    """Try machines; what is wrong. Raises `NodeFaultError` for one on which nothing could be tried."""
    from kitae.launch.probe import read_rounds

    assert launch.attempt is not None
    folder = launch.attempt
    try:
        launch_nodes(
            entry,
            {"folder": str(folder)},
            replace(launch, timeout_s=min(launch.timeout_s, TIMEOUT_S)),
            starter,
        )
    except StoppedError:
        raise
    except (KitaeError, RankBugError) as error:
        _blame(error, launch)
        raise
    return findings(read_rounds(folder))


def _blame(error: BaseException, launch: Launch) -> None:
    """Raise `NodeFaultError` where the error is one machine's; not for one that all have."""
    assert launch.attempt is not None
    ends = [NodeEnd.read(node_file(launch.attempt, node)) for node in range(launch.nodes)]
    node = error.node if isinstance(error, NodeLostError) else fault_of(error, ends).node
    all_alike = all(end is not None and any(_own(one.outcome) for one in end.ends) for end in ends)
    if node and not all_alike:
        raise NodeFaultError(node, str(error).partition("\n")[0]) from error


def _own(outcome: Outcome | None) -> bool:
    """Whether a rank failed by an error of its own."""
    return outcome is not None and not outcome.orderly and not outcome.lost_peer


def _raise_or_tell(found: Sequence[Finding], names: Sequence[str], known: Path, report: Report) -> None:
    try:
        before = set(json.loads(known.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        before = set()
    for one in found:
        name = names[one.node]
        if one.slow and name not in before:
            replace_file(known, json.dumps(sorted(before | {name})).encode())
        if not one.slow or name not in before:
            raise NodeFaultError(name, one.reason, slow=one.slow)
        report(f"node check: {name}: {one.reason}; no other took its place, so it is used")
