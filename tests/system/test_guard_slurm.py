"""The head node's guard with a real Slurm: a job that waits for a machine, and a queue that is closed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest
from clustermgtd_logs import boot_loop
from slurm import Shape, Slurm, slurm

from kitae.cluster.guard_program import Limits, Run, jobs_that_wait, look

NOW = datetime(2026, 12, 1, 4, tzinfo=timezone.utc)


@pytest.fixture
def cluster(tmp_path) -> Iterator[Slurm]:
    """Three machines that come for jobs; the third never does."""
    with slurm(tmp_path / "slurm", Shape(3, dynamic=True, suspend_s=600)) as found:
        resume = found.folder / "resume.sh"
        resume.rename(found.folder / "resume.real")
        resume.write_text(
            f"#!/bin/bash\nexport PATH={os.environ['PATH']}:/usr/sbin SLURM_CONF={found.conf}\n"
            'for node in $(scontrol show hostnames "$1"); do\n'
            f'  [ "$node" = c3 ] || {found.folder}/resume.real "$node"\ndone\n'
        )
        resume.chmod(0o755)
        yield found


# What ParallelCluster has beside Slurm is only noted.
def runs(cluster: Slurm, ordered: list[str]) -> Run:
    def run(words: Sequence[str]) -> str:
        if words[0] in ("squeue", "sinfo"):
            return cluster.run(*words)
        ordered.append(" ".join(words))
        return cluster.run(*words) if words[0] == "scontrol" else ""

    return run


def script(folder: Path) -> Path:
    path = folder / "job.sh"
    path.write_text("#!/bin/sh\nsleep 600\n")
    return path


def test_a_job_that_waits_is_held_and_its_machines_are_given_back(cluster, tmp_path):
    """Row 16 and T55: 2 of 3 came."""
    ordered: list[str] = []
    run = runs(cluster, ordered)
    job = cluster.submit("-N", "3", "--exclusive", "--output", str(tmp_path / "out"), script(tmp_path))
    cluster.wait_for(
        lambda: [one.came for one in jobs_that_wait(run)] == [2], "two of three machines", timeout_s=50
    )
    [waiting] = jobs_that_wait(run)
    assert (waiting.job, waiting.queue, waiting.wanted) == (str(job), "main", 3)
    assert waiting.waited_s > 0
    limits = Limits(5, waiting.waited_s, {"main": "21.50"})
    [found] = look(limits, run, [], tmp_path / "guard.json", NOW)
    assert found.text.startswith(f"2 of 3 machines of job {job} came, and waited 0 minutes for the others")
    cluster.wait_for(lambda: cluster.job(job)["JobState"] == "PENDING", "the job is pending again")
    assert cluster.job(job)["Priority"] == "0"
    cluster.wait_for(lambda: "POWER" in cluster.node("c1")["State"], "the first machine goes")
    assert look(limits, run, [], tmp_path / "guard.json", NOW) == []


def test_a_queue_of_a_boot_loop_is_closed_and_takes_no_job(cluster, tmp_path):
    """Row 17."""
    log, ordered = tmp_path / "clustermgtd", list[str]()
    log.write_text("\n".join(boot_loop("main", nodes=1, boots=6, minutes=10)) + "\n")
    [found] = look(Limits(5, 1200.0, {}), runs(cluster, ordered), [log], tmp_path / "guard.json", NOW)
    assert "5 machines failed to boot" in found.text
    assert "State=INACTIVE" in cluster.run("scontrol", "show", "partition", "main")
    assert ordered[-1] == "update-compute-fleet-status.sh --status PROTECTED"
