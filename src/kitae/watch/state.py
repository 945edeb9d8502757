"""In which state a run is, and why: the rules, from its attempts, its process and its jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from kitae.launch.slurm.parse import JobState
from kitae.watch.facts import Attempt, Life, RunFacts

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


def waits(job: JobState) -> bool:
    """Whether it has not begun, or is to begin again."""
    return job.state in ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")


def of_job(job: JobState, stage: str) -> tuple[State, str]:
    """Of a run with a job in the queue, or at work."""
    what = f"{stage}, job {job.number}"
    if job.state == "CONFIGURING":
        return "waiting", f"{what}: its nodes are being started"
    if waits(job):
        return "waiting", f"{what}: {_REASONS.get(job.reason, job.reason)}"
    usual = job.state in ("RUNNING", "COMPLETING")
    return "running", what if usual else f"{what}: {job.state.lower()}"


def of_attempts(
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


DAMAGED = "run.json is damaged, so that nothing tells what became of it"
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
        return "stopped", DAMAGED if facts.damaged else "no attempt has begun"
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
