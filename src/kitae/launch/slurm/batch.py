"""The batch supervisor, `python -m kitae.launch.slurm.batch RUN`: it is the script of a training's job.

It runs on the job's first node, starts the ranks of all nodes with srun, one attempt after the other, and
follows the rules of `decide`. SIGUSR1 comes before the time limit and means: save, and be queued again.
SIGUSR2 means: save, and end.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from kitae.errors import ClusterError, KitaeError, StoppedError
from kitae.launch.failure import NodeLostError, RankBugError
from kitae.launch.node import node_file
from kitae.launch.node_end import NodeEnd
from kitae.launch.slurm.allocation import Allocation
from kitae.launch.slurm.attempts import Attempts, attempt_folder
from kitae.launch.slurm.chain import recipe_file
from kitae.launch.slurm.commands import Slurm
from kitae.launch.slurm.decide import Asked, Ended, Move, decide
from kitae.launch.slurm.fault import fault_of
from kitae.launch.slurm.record import read_without, write_without

if TYPE_CHECKING:
    from kitae.stages.job import Job
    from kitae.stages.report import Log

RUNNING = ("RUNNING", "SUSPENDED", "CONFIGURING")
LEAVING_S = 300
"""How long this process waits to be ended once the job is queued again."""


class Asks:
    """What this job was asked for by a signal; while stages work, they are told by SIGTERM."""

    def __init__(self) -> None:
        self.asked: Asked = ""
        self._working = False
        signal.signal(signal.SIGUSR1, self._note)
        signal.signal(signal.SIGUSR2, self._note)

    def __enter__(self) -> Asks:
        self._working = True
        return self

    def __exit__(self, *what: object) -> None:
        self._working = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = "time limit" if number == signal.SIGUSR1 else "stop"
        if self._working:
            os.kill(os.getpid(), signal.SIGTERM)


class Batch:
    """The life of one job."""

    def __init__(self, run: Path, slurm: Slurm, here: Allocation, log: Log) -> None:
        self._run, self._slurm, self._here, self._log = run, slurm, here, log
        self._asks = Asks()
        self._attempts = Attempts(run, here)

    def live(self) -> int:
        """Attempt after attempt, until the training is complete or this job is over; its exit code."""
        lost = self._attempts.close_lost(self._slurm)
        if lost:
            self._log(f"slurm: {lost}")
        while True:
            ended, code, target_attempts = self._attempt()
            move = decide(ended, self._attempts.record(), target_attempts)
            self._attempts.note(move)
            if move.action == "again":
                self._log(f"slurm: {ended.why}")
                self._log("slurm: once more on the same nodes")
                continue
            if move.action == "requeue":
                return self._requeue(move)
            if move.failed:
                print(f"error: {move.why}" if code != StoppedError.exit_code else move.why, file=sys.stderr)
            return code

    def _attempt(self) -> tuple[Ended, int, int]:
        """One attempt: how it ended, the exit code that would be, and how many may fail."""
        from kitae.stages.pipeline import run_stages

        job = self._open()
        names = job.machines.names if job.machines is not None else ()
        limit, error = job.recipe.target.max_attempts, None
        self._attempts.begin(job, names)
        with self._asks:
            try:
                if self._asks.asked:
                    raise StoppedError("asked to stop before it began")
                run_stages(job, "train")
            except (KitaeError, RankBugError) as raised:
                error = raised
        if error is None:
            return Ended("complete"), 0, limit
        code = error.exit_code if isinstance(error, KitaeError) else 70
        return self._ended(error, job, names), code, limit

    def _open(self) -> Job:
        """The job on the nodes that are to be used: as many as share the work evenly, good ones first."""
        from kitae.backend.table import chosen
        from kitae.recipe.load import load_recipe
        from kitae.recipe.resolve import Machine, usable_nodes
        from kitae.stages.job import open_job

        file = recipe_file(self._run)
        without = read_without(self._run)
        good = [name for name in self._here.names if name not in without]
        recipe = load_recipe(file).recipe
        backend = chosen(recipe.target.backend)
        machine = Machine(backend.name, max(1, backend.devices()))
        there = good if len(good) >= recipe.target.least else list(self._here.names)
        names = there[: usable_nodes(recipe, len(there), machine)]
        idle = [name for name in self._here.names if name not in names]
        if idle:
            why = {name: without.get(name, "the batch cannot be shared evenly with it") for name in idle}
            self._log("slurm: left idle: " + ", ".join(f"{name} ({reason})" for name, reason in why.items()))
        job = open_job(file, [f"target.nodes={len(names)}"], report=self._log)
        return replace(job, machines=self._here.machines(self._slurm, names))

    def _ended(self, error: BaseException, job: Job, names: Sequence[str]) -> Ended:
        attempt = attempt_folder(job.run.path, job.run.attempts)
        ends = [NodeEnd.read(node_file(attempt, number)) for number in range(len(names))]
        fault = fault_of(error, ends)
        self._attempts.failed_on(fault.node)
        return Ended(
            how="stopped" if isinstance(error, StoppedError) else "failed",
            why=str(error),
            asked=self._asks.asked,
            leaving=self._slurm.record(self._here.job).get("JobState") not in RUNNING,
            repeats=fault.repeats,
            node=fault.node,
            bad_nodes=self._bad_nodes(names, error),
        )

    def _bad_nodes(self, names: Sequence[str], error: BaseException) -> dict[str, str]:
        bad = {name: str(node) for name, node in self._slurm.nodes(names).items() if node.bad}
        if isinstance(error, NodeLostError):
            bad.setdefault(error.node, error.reason)
        return bad

    def _requeue(self, move: Move) -> int:
        """Have the job queued again, without the bad nodes where others can take their place."""
        without = {**read_without(self._run), **self._replaceable(move.without)}
        write_without(self._run, without)
        self._log(f"slurm: {move.why}")
        left_out = "".join(f"; without {name}: {why}" for name, why in without.items())
        self._log(f"slurm: job {self._here.job} is queued again{left_out}")
        self._slurm.requeue(self._here.job)
        time.sleep(LEAVING_S)  # Slurm ends this process
        raise ClusterError(f"job {self._here.job} was queued again, but has not been ended by Slurm")

    def _replaceable(self, bad: Mapping[str, str]) -> Mapping[str, str]:
        """Those that can be left out for good: the partition has enough others."""
        from kitae.recipe.load import load_recipe

        least = load_recipe(recipe_file(self._run)).recipe.target.least
        left = self._slurm.partition_size(self._here.job) - len({*read_without(self._run), *bad})
        if bad and left < least:
            self._log(f"slurm: {', '.join(bad)} cannot be left out: the partition has too few other nodes")
        return bad if left >= least else {}


def main() -> int:
    """Look after the job that this process is the script of; its exit code."""
    from kitae.stages.report import Log
    from kitae.stages.run_folder import RunFolder

    run, log, slurm = Path(sys.argv[1]), Log(), Slurm()
    log.attach(RunFolder(run).log)
    try:
        return Batch(run, slurm, Allocation.here(slurm), log).live()
    except KitaeError as error:
        print(error if isinstance(error, StoppedError) else f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
