"""How a run is, from its folder, its process and its jobs: the rules, without anything that reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from kitae.launch.slurm.money import cost_usd
from kitae.launch.slurm.parse import JobState
from kitae.watch.facts import Attempt, Life, Progress, RunFacts, seconds_since_1970

State = Literal["running", "silent", "waiting", "done", "stopped", "failed", "died"]
ACTIVE: tuple[State, ...] = ("running", "silent", "waiting")
"""States that end without anybody's help."""
SILENT_S, SILENT_STEPS = 600.0, 20
"""A process on another machine is called silent after this time, and after so many of its steps."""

Jobs = Mapping[int, JobState]
"""Those that Slurm still knows, by number."""
_ENDED_WELL = "COMPLETED"
_REASONS = {
    "Resources": "for nodes: too few are free",
    "Priority": "for nodes: other jobs come first",
    "BeginTime": "queued again, to begin soon",
    "Dependency": "for the job before it",
    "DependencyNeverSatisfied": "for a job that failed",
    "JobHeldUser": "held by a person; scontrol release lets it go",
    "JobHeldAdmin": "held by an administrator",
    "": "to be looked at by Slurm",
    "None": "to be looked at by Slurm",
}
"""Why jobs wait, in words; other reasons are told as Slurm has them."""


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
        state, why = _of_job(status.job, status.stage_of(status.job))
    else:
        state, why = _of_attempts(facts, jobs, life, age)
    return replace(status, state=state, why=why, cost_usd=_cost(facts, state, now))


def waits(job: JobState) -> bool:
    """Whether it has not begun, or is to begin again."""
    return job.state in ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")


def _of_job(job: JobState, stage: str) -> tuple[State, str]:
    what = f"{stage}, job {job.number}"
    if job.state == "CONFIGURING":
        return "waiting", f"{what}: its nodes are being started"
    if waits(job):
        return "waiting", f"{what}: {_REASONS.get(job.reason, job.reason)}"
    usual = job.state in ("RUNNING", "COMPLETING")
    return "running", what if usual else f"{what}: {job.state.lower()}"


def _of_attempts(
    facts: RunFacts, jobs: Jobs | None, life: Callable[[Attempt], Life], age: float | None
) -> tuple[State, str]:
    """Of a run without a job in the queue."""
    newest = facts.newest
    lost = _lost_job(facts, jobs or {})
    if newest is None:
        return _never_begun(facts, jobs, lost)
    if newest["outcome"] == "running":
        return _of_process(facts, newest, jobs, life(newest), age)
    if jobs is None and newest.get("then") in ("again", "requeue"):
        return "waiting", f"job {newest.get('job')} was to go on; what became of it only Slurm can tell"
    if newest["outcome"] == "finished":
        return lost or ("done", _last(facts, newest))
    return _OUTCOMES.get(newest["outcome"], "failed"), newest.get("why") or _UNSAID[newest["outcome"]]


_OUTCOMES: dict[str, State] = {
    "stopped": "stopped",
    "killed": "died",
    "failed": "failed",
    "given up": "failed",
}
_UNSAID = {
    "stopped": "by a signal",
    "killed": "its process went without a word",
    "failed": "its log says why: kitae logs",
    "given up": "it waited too long for nodes",
}


def _never_begun(facts: RunFacts, jobs: Jobs | None, lost: tuple[State, str] | None) -> tuple[State, str]:
    if not facts.jobs:
        return "stopped", "no attempt has begun"
    if jobs is None:
        return "waiting", f"submitted as job {facts.jobs[0].number}; what became of it only Slurm can tell"
    return lost or ("failed", f"job {facts.jobs[0].number} is gone, and began nothing")


def _lost_job(facts: RunFacts, jobs: Jobs) -> tuple[State, str] | None:
    """What is to be said of the first job of the chain that did not end well; None when all did."""
    for one in facts.jobs:
        job = jobs.get(one.number)
        if job is not None and job.ended and job.state != _ENDED_WELL:
            state: State = "stopped" if job.state == "CANCELLED" else "failed"
            return state, f"{one.stage}, job {one.number}, ended as {job.state}"
    return None


def _of_process(
    facts: RunFacts, attempt: Attempt, jobs: Jobs | None, life: Life, age: float | None
) -> tuple[State, str]:
    """Of an attempt that has not said its end."""
    where = f"process {attempt.get('pid')} on {attempt.get('host') or 'this machine'}"
    if life == "alive":
        return "running", _stage_at_work(facts, attempt)
    number = attempt.get("job")
    if number is not None and jobs is not None:
        job = jobs.get(number)
        ended = f"ended as {job.state}" if job is not None else "is gone"
        return "died", f"job {number} {ended}, and its training left no word"
    if life == "gone":
        return "died", f"{where} is gone and left no word (killed, out of memory, or the machine went down?)"
    limit = max(SILENT_S, SILENT_STEPS * (facts.progress.step_seconds or 0.0))
    if age is not None and age > limit:
        return "silent", f"{where}, which cannot be seen from here; it may have died"
    return "running", f"{where}"


def _stage_at_work(facts: RunFacts, attempt: Attempt) -> str:
    trains = facts.last_sign is not None and facts.progress.step is not None
    return "" if trains else f"on its way to {attempt['last']}" if attempt.get("last") else ""


def _last(facts: RunFacts, attempt: Attempt) -> str:
    last = attempt.get("last") or (facts.stages[-1] if facts.stages else "")
    return "" if last == "prove" else last


def _nodes(attempt: Attempt | None) -> list[str]:
    """Names of the nodes of an attempt; of one outside a cluster, its machine."""
    if attempt is None:
        return []
    return list(attempt.get("nodes") or [attempt.get("host") or "this machine"])


def _cost(facts: RunFacts, state: State, now: float) -> float | None:
    """US dollars of all attempts, as far as prices are known."""
    costs = [_cost_of(facts, one, state, now) for one in facts.attempts]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None


def _cost_of(facts: RunFacts, attempt: Attempt, state: State, now: float) -> float | None:
    if attempt.get("cost_usd") is not None:
        return float(attempt["cost_usd"])
    price = attempt.get("price_per_node_hour") or facts.price_per_node_hour
    begun = seconds_since_1970(attempt["started"])
    if attempt.get("ended"):
        ended = seconds_since_1970(attempt["ended"])
    else:  # one that died cost until its last sign, as far as anybody knows
        ended = now if attempt is facts.newest and state in ACTIVE else facts.last_sign or begun
    nodes = attempt.get("nodes")
    return cost_usd(1 if nodes is None else len(nodes), max(0.0, ended - begun), price)
