"""Trainings on a real Slurm of three nodes: undisturbed, and through whatever befalls jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from demo_case import run_kitae
from job_case import write_case
from slurm import Shape, Slurm, slurm

from kitae.launch.slurm.chain import CHAIN, Submission
from kitae.launch.slurm.commands import Slurm as Commands

STEPS = 60
RECIPE = {
    "training": {"duration": f"{STEPS} steps", "global_batch_size": 12, "micro_batch_size": 1},
    "checkpoint": {"every": "5 steps", "keep": 3},
    "evaluation": {"every": "30 steps"},
    "target": {
        "kind": "slurm",
        "nodes": 3,
        "processes_per_node": 2,
        "time_limit": "30",
        "price_per_node_hour": 36.0,
    },
}
JOB_S = 180.0
"""Longer than any job here takes on a busy machine."""


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Model, text and recipe in a folder with a blank; text and model are in the cache already."""
    folder = tmp_path_factory.mktemp("on slurm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KITAE_CACHE", str(folder / "cache"))
        patch.setenv("OMP_NUM_THREADS", "1")
        write_case(folder, **RECIPE)
        one = run_kitae(
            *train("one"), "--target", "local", *set_("target.processes_per_node=1"), folder=folder
        )
        assert one.returncode == 0, one.stderr
        yield folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, case: Path) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("cluster") / "slurm") as up, pytest.MonkeyPatch.context() as patch:
        for name, value in up.environment.items():
            patch.setenv(name, value)
        yield up


def set_(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


def train(name: str) -> list[str]:
    return ["train", "recipe.yaml", *set_(f"name={name}")]


class Run:
    """A training that was submitted."""

    def __init__(self, case: Path, cluster: Slurm, name: str, *changes: str) -> None:
        self.cluster, self.path = cluster, case / "runs" / name
        os.chdir(case)  # `runs` starts where kitae is started
        submission = Submission.of(case / "recipe.yaml", [f"name={name}", *changes], print, Commands())
        (self.stage,) = submission.submit_tasks([task for _, task in CHAIN if task.trains])
        self.number = self.stage.number

    @property
    def attempts(self) -> list[dict]:
        return attempts(self.path)

    @property
    def log(self) -> str:
        logs = sorted((self.path / "logs").glob("*.log"))
        return "\n".join(f"==> {log.name}\n{log.read_text()[-3000:]}" for log in logs)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        def or_failed() -> bool:
            state = self.cluster.job(self.number)["JobState"]
            assert state not in ("FAILED", "CANCELLED", "TIMEOUT"), f"{what}: {state}\n{self.log}"
            return condition()

        try:
            self.cluster.wait_for(or_failed, what, JOB_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log}") from None

    def wait_for_step(self, step: int) -> None:
        self.wait(lambda: steps(self.path)[-1:] >= [step], f"step {step}")

    def wait_for_end(self) -> None:
        self.wait(lambda: self.cluster.job(self.number)["JobState"] == "COMPLETED", "the end")

    def wait_for_attempt(self, number: int) -> None:
        self.wait(lambda: len(self.attempts) >= number, f"attempt {number}")

    def ranks(self, node: str) -> list[psutil.Process]:
        """Those of the job's ranks that run on a node."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            with suppress(psutil.Error):
                if "kitae.launch.worker" in " ".join(process.info["cmdline"] or ()):
                    environment = process.environ()
                    mine = environment.get("SLURM_JOB_ID") == str(self.number)
                    if mine and environment.get("SLURMD_NODENAME") == node:
                        found.append(process)
        return found


def attempts(run: Path) -> list[dict]:
    with suppress(FileNotFoundError, ValueError):
        return json.loads((run / "run.json").read_text())["attempts"]
    return []


def records(run: Path) -> list[dict]:
    with suppress(FileNotFoundError):
        lines = (run / "metrics.jsonl").read_text().splitlines()
        return [
            record for line in lines if line.endswith("}") and (record := json.loads(line))["kind"] == "train"
        ]
    return []


def steps(run: Path) -> list[int]:
    return [record["step"] for record in records(run)]


def losses(run: Path) -> list[float]:
    return [record["loss"] for record in records(run)]


def weights(run: Path) -> bytes:
    parts = sorted((run / f"checkpoints/step-{STEPS:08d}").glob("*.safetensors"))
    assert parts
    return b"".join(part.read_bytes() for part in parts)


@pytest.fixture(scope="module")
def whole(case: Path, cluster: Slurm) -> Path:
    """The undisturbed run on three nodes, submitted as a person does, with all its stages."""
    done = run_kitae("run", "recipe.yaml", *set_("name=whole"), folder=case)
    assert done.returncode == 0, done.stderr
    assert "it costs at most $54.00 each time it runs (3 nodes, 0.5 hours)" in done.stdout
    twice = run_kitae("run", "recipe.yaml", *set_("name=whole"), folder=case)
    assert twice.returncode == 8, twice.stderr
    assert "is in the queue already" in twice.stderr
    last = max(job["number"] for job in json.loads((case / "runs/whole/slurm.json").read_text())["jobs"])
    try:
        cluster.wait_for_state(last, "COMPLETED", timeout_s=JOB_S)
    except AssertionError:
        logs = "\n".join(log.read_text() for log in (case / "runs/whole/logs").glob("slurm-*.log"))
        raise AssertionError(logs) from None
    return case / "runs/whole"


def test_three_nodes_of_two_processes_learn_what_one_process_does(case: Path, whole: Path):
    assert losses(whole) == pytest.approx(losses(case / "runs/one"), abs=1e-4)
    assert losses(whole)[:20] == pytest.approx(losses(case / "runs/one")[:20], abs=1e-5)
    assert steps(whole) == list(range(1, STEPS + 1))
    assert (whole / "export/model.safetensors").is_file()
    record = attempts(whole)[-2]
    assert (record["nodes"], record["outcome"], record["steps_lost"]) == (["n1", "n2", "n3"], "finished", 0)
    assert record["cost_usd"] > 0


def test_a_run_lives_through_what_befalls_it(case: Path, cluster: Slurm, whole: Path):
    """Rows 12 and 49: a killed rank, the signal before the time limit, a node that is switched off."""
    run = Run(case, cluster, "disturbed")
    run.wait_for_step(12)
    run.ranks("n2")[0].send_signal(signal.SIGKILL)
    run.wait_for_attempt(2)
    run.wait_for_step(22)
    cluster.run("scancel", "--batch", "--signal=USR1", str(run.number))
    run.wait_for_attempt(3)
    run.wait_for_step(34)
    cluster.kill_node("n3")
    run.wait(lambda: cluster.job(run.number)["JobState"] != "RUNNING", "the end of the third attempt")
    cluster.start_node("n3")
    run.wait_for_end()
    told = [(one["outcome"], one["then"]) for one in run.attempts]
    assert told == [("failed", "again"), ("stopped", "requeue"), ("failed", "requeue"), ("finished", "end")]
    first, second, third, _ = run.attempts
    assert "was killed by SIGKILL" in first["why"]
    assert first["failed_on"] == "n2"
    assert 0 <= first["steps_lost"] <= 5 + 1
    assert (second["why"], second["steps_lost"]) == ("the time limit is near", 0)
    assert third["failed_on"] == "n3"
    assert weights(run.path) == weights(whole)
    assert losses(run.path) == losses(whole)
