"""Looks after the jobs of a run while they wait, from where they were submitted: `.. attend RUN`.

While a job waits, no process of its own runs. This one

- lets a job that was queued again begin at once: Slurm holds it for two minutes, until the credentials of
  its first start have expired (slurm.conf(5), AuthInfo, cred_expire), which another start does not need;
- leaves out the nodes that the job found bad: they can only be named while it waits;
- gives jobs up that wait for nodes longer than `target.wait_limit`, and says what the waiting cost.

Nothing is lost when it ends: jobs then wait for as long as Slurm has them wait.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kitae.errors import ClusterError
from kitae.launch.slurm.commands import Slurm
from kitae.launch.slurm.money import cost_text, cost_usd
from kitae.launch.slurm.parse import JobState, NodeState
from kitae.launch.slurm.record import SUBMITTED, StageJob, read_jobs, read_without
from kitae.recipe.target import TargetConfig, seconds_of
from kitae.storage.lock import exclusive

LOOK_S = 5.0
_HELD = ("BeginTime",)
_NOT_FOR_NODES = ("Dependency", "DependencyNeverSatisfied", "JobHeldUser", "JobHeldAdmin", *_HELD)
"""Reasons to wait that no capacity would end."""


@dataclass
class Waiting:
    """How long a job has waited for nodes, and what that cost."""

    seconds: float = 0.0
    node_seconds: float = 0.0
    """Of nodes that were there already."""
    most_there: int = 0

    def look(self, job: JobState, there: int, passed_s: float) -> None:
        """Take account of the time since the last look."""
        if not waits_for_nodes(job):
            self.seconds = self.node_seconds = self.most_there = 0
            return
        self.seconds += passed_s
        self.node_seconds += there * passed_s
        self.most_there = max(self.most_there, there)

    def verdict(self, target: TargetConfig) -> str:
        """Why the job is given up; empty as long as it may wait."""
        limit = target.wait_limit
        if limit is None or self.seconds < seconds_of(limit):
            return ""
        cost = cost_usd(self.node_seconds / 3600, 3600, target.price_per_node_hour)
        return (
            f"{self.most_there} of {target.least} nodes came within {limit} (target.wait_limit): given up "
            f"and released; the waiting cost {cost_text(cost)}"
        )


def waits_for_nodes(job: JobState) -> bool:
    """Whether it waits for nodes to become free, or to be started."""
    return job.state == "CONFIGURING" or (job.state == "PENDING" and job.reason not in _NOT_FOR_NODES)


def is_held_back(job: JobState, restarts: int) -> bool:
    """Whether it could begin, but for the pause after it was queued again."""
    return job.state == "PENDING" and job.reason in _HELD and restarts > 0


def there_already(nodes: Sequence[NodeState]) -> int:
    """Nodes of a job that are up while it waits for the others."""
    coming = {"POWERING_UP", "POWERED_DOWN", "NOT_RESPONDING", "DOWN", "POWERING_DOWN"}
    return sum(node.states.isdisjoint(coming) for node in nodes)


class Attendant:
    """Of one run."""

    def __init__(self, run: Path, slurm: Slurm, now: Callable[[], float] = time.monotonic) -> None:
        self._run, self._slurm, self._now = run, slurm, now
        self._looked = now()
        self._waiting: dict[int, Waiting] = {}

    def look(self) -> bool:
        """Do what is due; whether any job is left."""
        now = self._now()
        passed, self._looked = now - self._looked, now
        jobs = read_jobs(self._run)
        found = self._slurm.jobs([job.number for job in jobs])
        left = [found[job.number] for job in jobs if job.number in found and not found[job.number].ended]
        for job in left:
            if job.state == "PENDING" and job.reason in _HELD:
                self._let_begin(job)
            self._count(job, passed, jobs)
        return bool(left)

    def _let_begin(self, job: JobState) -> None:
        record = self._slurm.record(job.number)
        if not is_held_back(job, int(record.get("Restarts", 0))):
            return
        without = read_without(self._run)
        changes = {"ExcNodeList": ",".join(without)} if without else {}
        self._slurm.change(job.number, {**changes, "StartTime": "now"})
        print(f"job {job.number} begins at once", *(f"without {name}" for name in without), flush=True)

    def _count(self, job: JobState, passed_s: float, jobs: Sequence[StageJob]) -> None:
        target = self._target()
        if target.wait_limit is None:
            return
        waiting = self._waiting.setdefault(job.number, Waiting())
        waiting.look(job, self._there(job), passed_s)
        verdict = waiting.verdict(target)
        if verdict:
            self._slurm.cancel([one.number for one in jobs])
            self._note(job.number, verdict)

    def _there(self, job: JobState) -> int:
        names = self._slurm.host_names(job.nodes) if job.nodes else []
        return there_already(list(self._slurm.nodes(names).values())) if names else 0

    def _target(self) -> TargetConfig:
        from kitae.recipe.load import load_recipe

        return load_recipe(self._run / SUBMITTED).recipe.target

    def _note(self, number: int, why: str) -> None:
        """Say it in `run.json`, where the attempts stand."""
        from kitae.stages.run_folder import RunFolder, now

        print(f"job {number}: {why}", flush=True)
        folder = RunFolder(self._run)
        with folder.held():
            ended = {"ended": now(), "outcome": "given up", "job": number, "nodes": [], "why": why}
            folder.state["attempts"].append({"started": now(), "pid": None, **ended})
            folder.write()


def main() -> None:
    """Attend to a run until none of its jobs is left; nothing where somebody does already."""
    run = Path(sys.argv[1])
    with exclusive(run / "slurm" / ".attended", wait=False) as held:
        attendant = Attendant(run, Slurm())
        failures = 0
        while held and failures < 100:
            try:
                if not attendant.look():
                    break
                failures = 0
            except ClusterError as error:  # a controller that is started anew, for instance
                failures += 1
                print(error, flush=True)
            time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
