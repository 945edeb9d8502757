"""Measurements as jobs of Slurm, one after the other: no two of them share the network, nor a node.

Each job waits for the one before it, however that ends, and for the job that prepares text and weights. They
stay in the queue when this process ends, and the same command looks after them again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kitae.errors import ClusterError, StoppedError
from kitae.launch.slurm.commands import Slurm
from kitae.launch.slurm.parse import JobState
from kitae.launch.slurm.record import StageJob, read_jobs, write_jobs
from kitae.launch.slurm.script import Task, log_of, script_of
from kitae.recipe.schema import Recipe
from kitae.recipe.target import seconds_of
from kitae.scale.setup import BASE, Order, Setup, failure, note_failure
from kitae.scale.verdict import counted
from kitae.storage.cache import cache_folder
from kitae.storage.files import replace_file

Report = Callable[[str], None]
LOOK_S = 1.0
_PREPARE = Task("prepare", "kitae.launch.slurm.stage", ("import",))
_MEASURE = Task("measure", "kitae.scale.job", all_nodes=True)
_AFTER_OTHERS = ("Dependency", "None", "")
"""Reasons of a job that is not next, or about to begin."""
_NEVER = (
    *("PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit", "BadConstraints", "InvalidAccount"),
    *("InvalidQOS", "JobHeldAdmin", "QOSMaxNodePerJobLimit", "AssocMaxNodePerJobLimit"),
    "DependencyNeverSatisfied",
)
"""Reasons that no waiting mends (squeue(1)). Not ReqNodeNotAvail, which cloud nodes have while they go."""


def measure_in_jobs(
    setup: Setup, report: Report, measured: Callable[[Order], None], detach: bool
) -> list[str]:
    """Submit what is missing and not in the queue, and wait for all of it; nothing to be warned of.

    Raises `StoppedError` on Ctrl-C, and with `detach` once all is submitted: the jobs stay in the queue.
    """
    queue = Queue(setup, report, measured)
    queue.fill()
    if detach:
        raise StoppedError(f"submitted; {queue.way_back()}")
    try:
        queue.follow()
    except KeyboardInterrupt:
        raise StoppedError(f"not followed any more; {queue.way_back()}") from None
    return []


@dataclass
class Queue:
    """Jobs of a setup."""

    setup: Setup
    report: Report
    measured: Callable[[Order], None]
    slurm: Slurm = field(default_factory=lambda: Slurm())
    jobs: dict[int, Order] = field(default_factory=dict)
    """Those that are not done, in the order in which they run."""
    waiting: dict[int, tuple[str, float]] = field(default_factory=dict)
    """Why a job waits, and since when."""

    def fill(self) -> None:
        """Submit all that is missing, but for what an earlier start has in the queue."""
        there = self._there(self.setup.missing())
        missing = self.setup.missing()  # once more: a job may have ended while Slurm was asked
        to_do = [order for order in missing if order not in there]
        first = self._prepared() if to_do else None
        lost: set[int] = set()
        for order in missing:
            if order in there:
                self.jobs[there[order]] = order
            elif order.width not in lost and not self._submit(order, first):
                lost.add(order.width)
        if to_do:
            self.report(
                f"{len(self.jobs)} jobs are in the queue, one after the other, behind job {first}, which "
                "prepares text and weights"
            )

    def _there(self, missing: list[Order]) -> dict[Order, int]:
        """Measurements whose jobs have not ended -> their numbers."""
        numbers = {order: job.number for order in missing for job in read_jobs(self.setup.place(order))}
        found = self.slurm.jobs(list(numbers.values()))
        return {
            order: number for order, number in numbers.items() if number in found and not found[number].ended
        }

    def _prepared(self) -> int:
        """The job that prepares text and weights."""
        folder = self.setup.folder / BASE
        return self._sbatch(_PREPARE, folder, self.setup.base, [])

    def _submit(self, order: Order, first: int | None) -> bool:
        """Put a measurement behind all others; False where Slurm refuses it, which is noted."""
        folder = self.setup.lay_out(order)
        # Of all before it, not of the last alone: where that one is given up, the others are not over.
        after = [":".join(["afterany", *map(str, self.jobs)])] if self.jobs else []
        words = ",".join([f"afterok:{first}", *after])
        try:
            number = self._sbatch(
                _MEASURE, folder, self.setup.recipes[order.width], [f"--dependency={words}"]
            )
        except ClusterError as error:
            note_failure(folder, str(error))
            self.report(f"{self._said(order.width)}: refused, and left out: {error}")
            return False
        self.jobs[number] = order
        return True

    def _sbatch(self, task: Task, folder: Path, recipe: Recipe, options: list[str]) -> int:
        script = folder / "slurm" / f"{task.stage}.sh"
        replace_file(script, script_of(task, folder, recipe.target, cache_folder()).encode())
        log_of(folder, task.stage).parent.mkdir(exist_ok=True)
        number = self.slurm.submit(script, ["--kill-on-invalid-dep=yes", *options])
        write_jobs(folder, [StageJob(task.stage, number)])
        return number

    def follow(self) -> None:
        """Wait until every job has ended, telling of each."""
        while self.jobs:
            states = self.slurm.jobs(list(self.jobs))
            for number in [one for one in self.jobs if one not in states or states[one].ended]:
                if number in self.jobs:
                    self._ended(number, states.get(number))
            for number, state in states.items():
                if number in self.jobs and state.state == "PENDING":
                    self._look_at_waiting(number, state)
            if self.jobs:
                time.sleep(LOOK_S)

    def _ended(self, number: int, state: JobState | None) -> None:
        order = self.jobs.pop(number)
        if self.setup.is_done(order):
            self.measured(order)
            return
        self._refuse_unprepared()
        folder = self.setup.place(order)
        why = failure(folder) or _last_words(folder, state)
        self._lose(order, why)

    def _lose(self, order: Order, why: str) -> None:
        """Give a width up: what is left of it would fail in the same way, and cost as much."""
        note_failure(self.setup.place(order), why)
        for number in [number for number, other in self.jobs.items() if other.width == order.width]:
            self._cancel(number)
        self.report(f"{self._said(order.width)}: failed, and left out: {why}")

    def _cancel(self, number: int) -> None:
        self.slurm.cancel([number])
        del self.jobs[number]

    def _refuse_unprepared(self) -> None:
        """Raise `ClusterError` where there is nothing to measure with: every job goes then."""
        jobs = read_jobs(self.setup.folder / BASE)
        found = self.slurm.jobs([job.number for job in jobs])
        for job in jobs:
            if job.number in found and found[job.number].ended and found[job.number].state != "COMPLETED":
                if self.jobs:
                    self.slurm.cancel(list(self.jobs))
                why = _last_words(self.setup.folder / BASE, found[job.number], "prepare")
                raise ClusterError(f"text and weights could not be prepared: {why}")

    def _look_at_waiting(self, number: int, state: JobState) -> None:
        """Tell why the next job waits, and give it up when that takes too long."""
        order = self.jobs[number]
        if state.reason in _AFTER_OTHERS:
            return
        if state.reason in _NEVER:
            self._cancel(number)
            self._lose(order, f"Slurm cannot start its job: {state.reason}")
            return
        before, since = self.waiting.get(number, ("", time.monotonic()))
        self.waiting[number] = state.reason, since
        if before != state.reason and state.reason not in ("Priority", "Resources"):
            self.report(f"{self._said(order.width)}: job {number} waits: {state.reason}")
        limit = self.setup.recipes[order.width].target.wait_limit
        if limit is not None and time.monotonic() - since > seconds_of(limit):
            self._cancel(number)
            self._lose(order, f"waited longer than target.wait_limit ({limit}): {state.reason}")

    def way_back(self) -> str:
        """How this goes on."""
        numbers = " ".join(map(str, self.jobs))
        return (
            f"{len(self.jobs)} jobs go on in the queue: the same command looks after them again; "
            f"scancel {numbers} would end them"
        )

    def _said(self, width: int) -> str:
        return counted(width, self.setup.wanted.unit)


def _last_words(folder: Path, state: JobState | None, stage: str = "measure") -> str:
    """Why a job ended that left nothing: its error, else what Slurm says."""
    log = log_of(folder, stage)
    errors = list(_errors(log))
    if errors:
        return f"{errors[-1]} (see {log})"
    how = "is unknown to Slurm" if state is None else f"ended as {state.state}"
    return f"its job {how} (see {log})"


def _errors(log: Path) -> Iterator[str]:
    if log.is_file():
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("error: ", "slurmstepd: error: ")):
                yield line.removeprefix("error: ")
