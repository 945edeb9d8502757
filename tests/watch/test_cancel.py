"""Runs that are ended from outside: real processes, and jobs of a recorded Slurm."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from recorded_runs import attempt, write_run

import kitae
from kitae.errors import ClusterError, KitaeError
from kitae.launch.slurm.commands import Slurm
from kitae.launch.slurm.parse import JobState
from kitae.stages.run_folder import RunFolder
from kitae.watch import cancel as cancelling
from kitae.watch.cancel import Plan, cancel, plan_of
from kitae.watch.facts import RunFacts
from kitae.watch.look import look
from kitae.watch.status import Status, status_of

CHAIN = [("prepare", 1), ("train", 2), ("prove", 3)]
DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch):
    for name in ("LOOK_S", "LOOK_AT_JOBS_S"):
        monkeypatch.setattr(cancelling, name, 0.05)


def status(run: Path, **states: str) -> Status:
    """A run whose jobs are in these states."""
    numbers = dict(CHAIN)
    jobs = {
        numbers[stage]: JobState(numbers[stage], "", state, "", "", 0, 0.0, 0.0)
        for stage, state in states.items()
    }
    return status_of(RunFacts.read(run), jobs, lambda attempt: "elsewhere", time.time())


class Recorded:
    """Takes the place of Slurm's programs, and keeps how they were called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    @property
    def slurm(self) -> Slurm:
        def run(words: Any) -> subprocess.CompletedProcess[str]:
            self.calls.append(" ".join(words))
            return subprocess.CompletedProcess(words, 0, "", "")

        return Slurm(run)


def test_the_training_saves_and_what_waits_goes(tmp_path: Path):
    run = write_run(tmp_path, [attempt(job=2)], jobs=CHAIN)
    found = status(run, prepare="COMPLETED", train="RUNNING", prove="PENDING")
    assert plan_of(found, at_once=False) == Plan(save=(2,), end=(3,))
    assert plan_of(found, at_once=True) == Plan(end=(2, 3))


def test_other_jobs_and_those_that_wait_only_go(tmp_path: Path):
    run = write_run(tmp_path, jobs=CHAIN)
    found = status(run, prepare="RUNNING", train="PENDING", prove="PENDING")
    assert plan_of(found, at_once=False) == Plan(end=(1, 2, 3))
    again = status(run, train="REQUEUED", prove="PENDING")
    assert plan_of(again, at_once=False) == Plan(end=(2, 3))


def looks(*found: Status) -> Callable[[], Status]:
    left = list(found)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_a_job_that_is_queued_again_meanwhile_goes_as_well(tmp_path: Path):
    run = write_run(tmp_path / "a", [attempt(job=2)], jobs=CHAIN)
    ended = write_run(tmp_path / "b", [attempt("stopped", job=2, why="stopped as asked")], jobs=CHAIN)
    works = status(run, train="RUNNING", prove="PENDING")
    recorded, told = Recorded(), list[str]()
    last = cancel(
        works,
        looks(status(run, train="RUNNING"), status(run, train="PENDING"), status(ended, train="CANCELLED")),
        recorded.slurm,
        told.append,
    )
    assert recorded.calls == ["scancel 3", "scancel --batch --signal=USR2 2", "scancel 2"]
    assert told == ["cancelled: job 3", "asked to save and end: job 2", "cancelled: job 2"]
    assert (last.state, last.why) == ("stopped", "stopped as asked")


def test_a_job_that_is_ended_at_once_was_stopped_and_did_not_die(tmp_path: Path):
    run = write_run(tmp_path, [attempt(job=2)], jobs=CHAIN)
    recorded = Recorded()

    def look_again() -> Status:
        return status(run, train="CANCELLED")

    last = cancel(status(run, train="RUNNING"), look_again, recorded.slurm, lambda line: None, at_once=True)
    assert recorded.calls == ["scancel 2"]
    assert (last.state, last.why) == ("stopped", "ended at once, as asked")


def test_a_run_that_only_waited_says_that_it_was_cancelled(tmp_path: Path):
    """Slurm forgets jobs in minutes."""
    run = write_run(tmp_path, jobs=CHAIN)
    waits = status(run, prepare="PENDING", train="PENDING", prove="PENDING")
    recorded = Recorded()
    gone = status(run, prepare="CANCELLED", train="CANCELLED", prove="CANCELLED")
    cancel(waits, looks(gone), recorded.slurm, lambda line: None)
    assert recorded.calls == ["scancel 1 2 3"]
    last = status(run)
    assert (last.state, last.why, last.node_count) == ("stopped", "cancelled while it waited", 0)


def test_nobody_waits_who_does_not_want_to(tmp_path: Path):
    run = write_run(tmp_path, [attempt(job=2)], jobs=CHAIN)
    works = status(run, train="RUNNING")
    assert cancel(works, looks(works), Recorded().slurm, lambda line: None, wait=False).state == "running"


def test_what_cannot_be_reached_is_said(tmp_path: Path):
    far = status(write_run(tmp_path / "a", [attempt(host="far")]))
    with pytest.raises(KitaeError, match="a is process 4242 on far, which cannot be reached from here"):
        plan_of(far, at_once=False)
    run = write_run(tmp_path / "b", [attempt(host="far", job=2)], jobs=CHAIN)
    blind = status_of(RunFacts.read(run), None, lambda attempt: "elsewhere", time.time())
    with pytest.raises(ClusterError, match="b is in a job of Slurm, which cannot be asked here"):
        plan_of(blind, at_once=False)


def test_one_that_gives_no_sign_is_not_waited_for_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cancelling, "SILENT_S", 0.0)
    run = write_run(tmp_path, [attempt(host="far")])
    (run / "attempts/0001").mkdir(parents=True)
    (run / "attempts/0001/order.json").write_text("{}")
    silent = status(run)
    assert silent.state == "silent"
    with pytest.raises(KitaeError, match="does not answer: process 4242 on far"):
        cancel(silent, looks(silent), Recorded().slurm, lambda line: None)
    assert (run / "attempts/0001/stop").read_text() == "SIGTERM"


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def process(how: str, run: Path, works: Callable[[], bool]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that works in a run."""
    tests = Path(__file__).parents[1]
    places = (Path(kitae.__file__).parents[1], tests / "launch")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("cancelled_runs.py")), how, str(run)]
    with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as started:
        try:
            until(works)
            yield started
        finally:
            started.kill()


def ended(run: Path, **options: bool) -> tuple[Status, list[str]]:
    """End a run of this machine."""
    told: list[str] = []
    return cancel(look(run), lambda: look(run), Recorded().slurm, told.append, **options), told


def test_a_process_of_this_machine_ends_by_a_signal(tmp_path: Path):
    with process("wait", tmp_path, (tmp_path / "works").exists) as started:
        assert look(tmp_path).state == "running"
        last, told = ended(tmp_path)
        assert started.wait(DEADLINE_S) == 75
    assert (last.state, last.why.partition(";")[0]) == ("stopped", "stopped by SIGTERM between two results")
    assert told == [f"asked to save and end: process {started.pid}"]


def test_at_once_is_an_interrupt(tmp_path: Path):
    with process("wait", tmp_path, (tmp_path / "works").exists):
        last, _ = ended(tmp_path, at_once=True)
    assert (last.state, last.why) == ("stopped", "KeyboardInterrupt")


def test_at_once_by_force_where_nothing_else_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cancelling, "KILL_S", 0.2)
    monkeypatch.setattr(cancelling, "ASK_AGAIN_S", 0.1)
    with process("deaf", tmp_path, (tmp_path / "works").exists) as started:
        last, _ = ended(tmp_path, at_once=True)
        assert not psutil.pid_exists(started.pid)
    assert (last.state, last.why) == ("stopped", "ended at once, as asked")
    assert RunFolder(tmp_path).state["attempts"][0]["ended"] is not None


def test_nodes_that_share_the_folder_save_one_step_and_end(tmp_path: Path):
    """Two machines that a starter has begun, seen from a third one, which can signal none of them."""
    trains = [tmp_path / f"trains-{rank}" for rank in range(2)]
    with process("nodes", tmp_path, lambda: all(one.exists() for one in trains)) as started:
        seen = look(tmp_path)
        assert (seen.state, seen.why) == ("running", f"process {started.pid} on first-node")
        last, told = ended(tmp_path)
        assert started.wait(DEADLINE_S) == 75
    steps = {(tmp_path / f"saved-{rank}").read_text() for rank in range(2)}
    assert len(steps) == 1
    assert (last.state, last.why) == ("stopped", f"stopped by SIGTERM after step {steps.pop()}")
    assert told == ["asked to save and end: its nodes, through a file in the run's folder"]
