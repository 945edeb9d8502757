"""Ends a run from outside: by default so that it saves first, wherever it is.

| where it is | to save and end | at once |
|---|---|---|
| the training's job, running | SIGUSR2 to the batch supervisor | scancel |
| another job, or one that waits | scancel | scancel |
| a process of this machine | SIGTERM | SIGINT twice, then SIGKILL |
| a process elsewhere, in whose attempt nodes look at files | the stop file of the attempt | – |
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from kitae.errors import ClusterError, KitaeError
from kitae.launch.node import stop_file
from kitae.launch.slurm.commands import Slurm
from kitae.stages.run_folder import RunFolder, now
from kitae.storage.files import replace_file
from kitae.watch.facts import life_of
from kitae.watch.state import waits
from kitae.watch.status import Status

TRAINS = "train"
"""The stage whose job saves when it is asked for its end."""
ASK_AGAIN_S = 1.0
KILL_S = 10.0
LOOK_S, LOOK_AT_JOBS_S = 0.5, 5.0
TELL_S = 30.0
SILENT_S = 60.0
"""How long one that gives no sign is waited for."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What is to be done."""

    save: tuple[int, ...] = ()
    """Jobs that are asked to save and end."""
    end: tuple[int, ...] = ()
    """Jobs that are ended, or taken out of the queue."""
    pid: int | None = None
    """A process of this machine."""
    stop: Path | None = None
    """A file that nodes look for."""


def plan_of(status: Status, at_once: bool) -> Plan:
    """How to end a run. Raises `KitaeError` where it cannot be reached from here."""
    if status.open_jobs:
        saving = [job for job in status.open_jobs if _saves(status, job.number) and not at_once]
        ended = [job.number for job in status.open_jobs if job not in saving]
        return Plan(save=tuple(job.number for job in saving), end=tuple(ended))
    attempt = status.facts.newest or {}
    if not status.jobs_known:
        raise ClusterError(
            f"{status.name} is in a job of Slurm, which cannot be asked here; cancel it where squeue works"
        )
    if attempt and life_of(attempt) == "alive":
        return Plan(pid=int(attempt["pid"]))
    folder = status.facts.path / "attempts" / f"{len(status.facts.attempts):04d}"
    if (folder / "order.json").is_file() and not at_once:
        return Plan(stop=stop_file(folder))
    raise KitaeError(
        f"{status.name} is process {attempt.get('pid')} on {attempt.get('host')}, which cannot be reached "
        "from here; run kitae cancel there"
    )


def _saves(status: Status, number: int) -> bool:
    """Whether a job would save when it is asked for its end: the training, once it runs."""
    job = next(one for one in status.open_jobs if one.number == number)
    return not waits(job) and status.stage_of(job) == TRAINS


def carry_out(plan: Plan, slurm: Slurm, at_once: bool, tell: Tell) -> None:
    """Do what a plan says."""
    if plan.end:
        slurm.cancel(plan.end)
        tell(f"cancelled: {_listed(plan.end)}")
    if plan.save:
        slurm.cancel(plan.save, signal="USR2")
        tell(f"asked to save and end: {_listed(plan.save)}")
    if plan.stop is not None:
        replace_file(plan.stop, signal.SIGTERM.name.encode())
        tell("asked to save and end: its nodes, through a file in the run's folder")
    if plan.pid is not None:
        _end_process(plan.pid, at_once, tell)


def _listed(numbers: tuple[int, ...]) -> str:
    return f"{'job' if len(numbers) == 1 else 'jobs'} {', '.join(map(str, numbers))}"


def _end_process(pid: int, at_once: bool, tell: Tell) -> None:
    try:
        process = psutil.Process(pid)
        if not at_once:
            process.send_signal(signal.SIGTERM)
            tell(f"asked to save and end: process {pid}")
            return
        tell(f"ending process {pid} without a save")
        _end_now(process)
    except psutil.NoSuchProcess:
        return  # it has ended meanwhile
    except psutil.AccessDenied:
        raise KitaeError(f"process {pid} is another user's ({process.username()}); ask them") from None


def _end_now(process: psutil.Process) -> None:
    """As a second Ctrl-C does; by force where that does not help."""
    family = [process, *process.children(recursive=True)]
    process.send_signal(signal.SIGINT)
    try:
        process.wait(ASK_AGAIN_S)
    except psutil.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    for one in psutil.wait_procs(family, KILL_S)[1]:
        one.kill()
    psutil.wait_procs(family, KILL_S)


def cancel(
    status: Status,
    look: Callable[[], Status],
    slurm: Slurm,
    tell: Tell,
    *,
    at_once: bool = False,
    wait: bool = True,
) -> Status:
    """End a run, and wait until it has ended; how it is then.

    A job that is queued again meanwhile is cancelled as well.
    """
    before, plan = status, plan_of(status, at_once)
    carry_out(plan, slurm, at_once, tell)
    if wait:
        _wait(plan, look, slurm, tell, at_once)
    after = look()
    waited = before.open_jobs and all(map(waits, before.open_jobs))
    if waited and len(after.facts.attempts) == len(before.facts.attempts):
        _note(after, "cancelled while it waited")
    if at_once and after.state == "died":
        _close(after, "ended at once, as asked")
    return look()


def _wait(done: Plan, look: Callable[[], Status], slurm: Slurm, tell: Tell, at_once: bool) -> None:
    """Until the run has ended."""
    begun, tell_at = time.monotonic(), TELL_S
    for status in _looks(look):
        if not status.active:
            return
        waited = time.monotonic() - begun
        if status.state == "silent" and waited > SILENT_S:
            raise KitaeError(f"{status.name} does not answer: {status.why}")
        if status.open_jobs:
            plan = plan_of(status, at_once)
            # Queued again, by itself or for a preemption, before it was asked.
            new = Plan(end=tuple(number for number in plan.end if number not in done.end))
            if new.end:
                carry_out(new, slurm, at_once, tell)
                done = Plan(done.save, (*done.end, *new.end))
        if waited > tell_at:
            tell_at += TELL_S
            tell(f"{status.name} has not ended yet; kitae cancel --now ends it without a save")


def _looks(look: Callable[[], Status]) -> Iterator[Status]:
    while True:
        status = look()
        yield status
        time.sleep(LOOK_AT_JOBS_S if status.facts.jobs else LOOK_S)


def _note(status: Status, why: str) -> None:
    """Say in `run.json` that jobs went that had begun nothing: Slurm forgets them in minutes."""
    ended = {"ended": now(), "outcome": "stopped", "why": why}
    record: dict[str, object] = {"started": now(), "pid": None, "nodes": [], **ended}
    folder = RunFolder(status.facts.path)
    with folder.held():
        folder.state["attempts"].append(record)
        folder.write()


def _close(status: Status, why: str) -> None:
    """Say in `run.json` how an attempt ended that could not say it itself."""
    folder = RunFolder(status.facts.path)
    last = folder.state["attempts"][-1]
    if last["outcome"] == "running":
        with folder.held():
            last.update(outcome="stopped", ended=now(), why=why)
            folder.write()
