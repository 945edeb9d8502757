"""What has to be known to let a run go on: how far it was to go, and by which recipe."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from kitae.errors import KitaeError
from kitae.launch.slurm.record import SUBMITTED
from kitae.watch.facts import RunFacts
from kitae.watch.log_view import summary
from kitae.watch.status import Status

STAGES = ("plan", "prepare", "import", "precompile", "train", "export", "prove")
"""In the order of the pipeline."""
_TOPOLOGY = ("parallel.data_parallel_size", "target.processes_per_node")
"""What other nodes change, where it was written down as it was resolved for those before."""


def refuse_active(status: Status) -> None:
    """Raise `KitaeError` for a run that goes on by itself, or that may."""
    if status.state == "silent":
        raise KitaeError(
            f"{status.name} may be at work: {status.why}; make sure that it has ended, and then start it "
            f"with kitae run {status.facts.path}"
        )
    if status.active:
        raise KitaeError(f"{summary(status)}; follow it with kitae logs -f, or end it with kitae cancel")


def last_stage(facts: RunFacts) -> str:
    """Up to which stage the run was to go when it was started last."""
    asked = [job.stage for job in facts.jobs]
    asked += [one["last"] for one in facts.attempts if one.get("last")][-1:]
    known = [STAGES.index(stage) for stage in asked if stage in STAGES]
    return STAGES[max(known)] if known else STAGES[-1]


def recipe_changes(run: Path, moved: bool) -> Sequence[str]:
    """Changes without which the run's own recipe could not be used.

    `moved`: it goes on on other nodes. A recipe as submitted leaves open what depends on them; one as
    resolved does not. The former is opened by its file, which may name a place where the run is no more.
    """
    if (run / SUBMITTED).is_file():
        return [f"runs={json.dumps(str(run.parent))}", f"name={json.dumps(run.name)}"]
    return [f"{name}=auto" for name in _TOPOLOGY] if moved else []


def source_of(run: Path) -> Path:
    """What to open the run by: its recipe as submitted, else its folder."""
    submitted = run / SUBMITTED
    return submitted if submitted.is_file() else run
