"""Slurm's programs, called with a limit of time and clear words when they fail."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from kitae.errors import ClusterError
from kitae.launch.slurm import parse
from kitae.launch.slurm.parse import JobState, NodeState

LIMIT_S = 60.0
TRIES, PAUSE_S = 3, 2.0
_BUSY = ("Unable to contact slurm controller", "Socket timed out", "Connection refused", "temporarily")
_UNKNOWN_JOB = "Invalid job id"

Runner = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]
State = TypeVar("State")


def run_program(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program of Slurm's, without what a job that this process may be in would tell it."""
    # squeue and others print times and columns as these say.
    hidden = ("SQUEUE_", "SINFO_", "SACCT_", "SLURM_TIME_FORMAT", "SLURM_JSON")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return subprocess.run(
        words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S
    )


class Slurm:
    """The scheduler of this cluster."""

    def __init__(self, run: Runner = run_program, sleep: Callable[[float], None] = time.sleep) -> None:
        self._run = run
        self._sleep = sleep

    def call(self, *words: str, again: bool = True) -> str:
        """The output of a program. A busy controller is asked `again`. Raises `ClusterError`."""
        for left in reversed(range(TRIES if again else 1)):
            try:
                done = self._run(words)
            except FileNotFoundError:
                raise ClusterError(
                    f"there is no program {words[0]} here; start kitae where Slurm's programs are, such as "
                    "on the cluster's head node, or load its module"
                ) from None
            except subprocess.TimeoutExpired:
                raise ClusterError(
                    f"{words[0]} has said nothing for {LIMIT_S:g} s; is slurmctld up (scontrol ping)?"
                ) from None
            if done.returncode == 0:
                return done.stdout
            if left and any(sign in done.stderr for sign in _BUSY):
                self._sleep(PAUSE_S)
                continue
            break
        raise ClusterError(f"{' '.join(words[:3])}: {_words_of(done)}")

    def submit(self, script: Path, options: Sequence[str] = ()) -> int:
        """Submit a script; the job's number."""
        # Not twice: the first try may have worked although its answer did not come.
        answer = self.call("sbatch", "--parsable", *options, str(script), again=False)
        return int(answer.strip().partition(";")[0])

    def jobs(self, numbers: Sequence[int]) -> dict[int, JobState]:
        """Those of the jobs that Slurm still knows."""
        if not numbers:
            return {}
        listed = ",".join(map(str, numbers))
        text = ("squeue", f"--jobs={listed}", "--states=all", "--noheader", f"--format={parse.JOB_COLUMNS}")
        found = self._states(("squeue", "--json"), parse.jobs_of_json, text, parse.jobs_of_text)
        return {job.number: job for job in found if job.number in numbers}

    def nodes(self, names: Sequence[str]) -> dict[str, NodeState]:
        """How nodes are."""
        text = (
            "sinfo",
            "--Node",
            f"--nodes={','.join(names)}",
            "--noheader",
            f"--format={parse.NODE_COLUMNS}",
        )
        found = self._states(("sinfo", "--json"), parse.nodes_of_json, text, parse.nodes_of_text)
        return {node.name: node for node in found if node.name in names}

    def _states(
        self,
        json_words: Sequence[str],
        of_json: Callable[[str], list[State]],
        text_words: Sequence[str],
        of_text: Callable[[str], list[State]],
    ) -> list[State]:
        """As JSON; as text from releases that have none, or another."""
        try:
            return of_json(self.call(*json_words))
        except (ClusterError, ValueError, KeyError, TypeError):
            pass
        try:
            return of_text(self.call(*text_words))
        except ClusterError as error:
            if _UNKNOWN_JOB in str(error):
                return []
            raise

    def record(self, number: int) -> dict[str, str]:
        """All that Slurm says of a job; empty when it knows it no more."""
        try:
            return parse.record_of(self.call("scontrol", "show", "job", str(number), "--oneliner"))
        except ClusterError as error:
            if _UNKNOWN_JOB in str(error):
                return {}
            raise

    def host_names(self, nodes: str) -> list[str]:
        """The names in a list such as `n[1-2,5]`, in order."""
        return self.call("scontrol", "show", "hostnames", nodes).split()

    def addresses(self, names: Sequence[str]) -> dict[str, str]:
        """Where nodes are reached: an address or a name, as Slurm itself uses it."""
        lines = self.call("scontrol", "show", "node", ",".join(names), "--oneliner").splitlines()
        records = map(parse.record_of, lines)
        return {one["NodeName"]: one.get("NodeAddr", one["NodeName"]) for one in records if "NodeName" in one}

    def partition_size(self, number: int) -> int:
        """How many nodes the partition of a job has, well or not."""
        partition = self.record(number).get("Partition", "")
        found = parse.record_of(self.call("scontrol", "show", "partition", partition, "--oneliner"))
        return int(found.get("TotalNodes", 0))

    def requeue(self, number: int) -> None:
        """Let a running job begin again, on whatever nodes."""
        self.call("scontrol", "requeue", str(number))

    def change(self, number: int, values: Mapping[str, str]) -> None:
        """Change fields of a job."""
        self.call("scontrol", "update", f"JobId={number}", *(f"{k}={v}" for k, v in values.items()))

    def cancel(self, numbers: Sequence[int], signal: str | None = None) -> None:
        """Cancel jobs; with a signal, send it to their scripts alone."""
        options = ["--batch", f"--signal={signal}"] if signal else []
        self.call("scancel", *options, *map(str, numbers))


def _words_of(done: subprocess.CompletedProcess[str]) -> str:
    """What a program that failed said."""
    lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return "; ".join(lines[-3:]) or f"ended with code {done.returncode}"
