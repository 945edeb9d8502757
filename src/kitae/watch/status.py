"""How a run is at one moment, and what there is to say of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kitae.launch.slurm.parse import JobState
from kitae.watch.cost import cost_of_run
from kitae.watch.facts import Attempt, Life, Progress, RunFacts
from kitae.watch.state import ACTIVE, Jobs, State, of_attempts, of_job, waits


@dataclass(frozen=True)
class Status:
    """A run at one moment."""

    facts: RunFacts
    state: State
    why: str = ""
    """What there is to say besides; may be several lines."""
    open_jobs: tuple[JobState, ...] = ()
    """Those that run or wait, in the order of the chain."""
    jobs_known: bool = True
    """Whether Slurm could be asked, where there are jobs."""
    cost_usd: float | None = None
    """So far; None where no price is known."""
    sign_age_s: float | None = None
    """Since the last sign of life."""

    @property
    def name(self) -> str:
        """What the run is called."""
        return self.facts.path.name

    @property
    def job(self) -> JobState | None:
        """The job that runs; otherwise the first that waits."""
        running = [job for job in self.open_jobs if not waits(job)]
        return next(iter([*running, *self.open_jobs]), None)

    def stage_of(self, job: JobState) -> str:
        """What a job of this run does."""
        return next(one.stage for one in self.facts.jobs if one.number == job.number)

    @property
    def active(self) -> bool:
        """Whether it goes on by itself."""
        return self.state in ACTIVE

    @property
    def progress(self) -> Progress:
        """Of the training."""
        return self.facts.progress

    @property
    def seconds_left(self) -> float | None:
        """Of a training that runs."""
        return self.progress.seconds_left if self.state == "running" else None

    @property
    def node_count(self) -> int:
        """Of the newest attempt, or those that the waiting job asks for."""
        if self.job is not None and self.job.node_count:
            return self.job.node_count
        return len(_nodes(self.facts.newest))

    def as_json(self) -> dict[str, Any]:
        """Everything, for programs."""
        newest = self.facts.newest or {}
        progress = self.progress
        return {
            "run": self.name,
            "path": str(self.facts.path),
            "state": self.state,
            "why": self.why,
            "attempt": len(self.facts.attempts),
            "step": progress.step,
            "steps": progress.steps,
            "loss": progress.loss,
            "tokens_per_s": progress.tokens_per_s,
            "node_count": self.node_count,
            "nodes": _nodes(newest) if newest else [],
            "seconds_left": self.seconds_left,
            "cost_usd": self.cost_usd,
            "last_sign_s": self.sign_age_s,
            "job": None if self.job is None else self.job.number,
            "pid": newest.get("pid"),
            "host": newest.get("host"),
        }


def status_of(facts: RunFacts, jobs: Jobs | None, life: Callable[[Attempt], Life], now: float) -> Status:
    """How a run is at `now` (seconds since 1970).

    `jobs` is None where nobody can ask Slurm; `life` tells of the process of an attempt.
    """
    age = None if facts.last_sign is None else max(0.0, now - facts.last_sign)
    listed = [jobs[one.number] for one in facts.jobs if one.number in jobs] if jobs else []
    status = Status(
        facts,
        "stopped",
        open_jobs=tuple(job for job in listed if not job.ended),
        jobs_known=jobs is not None,
        sign_age_s=age,
    )
    if status.job is not None:
        state, why = of_job(status.job, status.stage_of(status.job))
    else:
        state, why = of_attempts(facts, jobs, life, age)
    return replace(status, state=state, why=why, cost_usd=cost_of_run(facts, state, now))


def _nodes(attempt: Attempt | None) -> list[str]:
    """Names of the nodes of an attempt; of one outside a cluster, its machine."""
    if attempt is None:
        return []
    nodes = attempt.get("nodes")
    return [attempt.get("host") or "this machine"] if nodes is None else list(nodes)
