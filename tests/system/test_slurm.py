"""Trainings on a real Slurm of three nodes: undisturbed, and through whatever befalls jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
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
        "node_check": False,
        "kind": "slurm",
        "nodes": 3,
        "processes_per_node": 2,
        "time_limit": "30",
        "price_per_node_hour": 36.0,
    },
}
JOB_S = 150.0
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
            log = self.log
            self.cluster.run("scancel", "--quiet", str(self.number))  # others need the nodes
            raise AssertionError(f"{error}\n{log}") from None

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
                    wanted = {"SLURM_JOB_ID": str(self.number), "SLURMD_NODENAME": node}
                    wanted |= {"SLURM_CONF": self.cluster.environment["SLURM_CONF"]}  # others may be up
                    if wanted.items() <= environment.items():
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
    cluster.wait_for_state(last, "COMPLETED", "CANCELLED", timeout_s=JOB_S)
    logs = "\n".join(log.read_text() for log in (case / "runs/whole/logs").glob("slurm-*.log"))
    assert cluster.job(last)["JobState"] == "COMPLETED", logs
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


def test_fewer_nodes_go_on_with_the_same_batches(case: Path, cluster: Slurm, whole: Path):
    """Three nodes, then two: no sample repeated or lost, and the lost node is named."""
    run = Run(case, cluster, "shrunk", "target.nodes={min: 2, max: 3}")
    run.wait_for_step(20)
    cluster.kill_node("n3")
    run.wait_for_end()
    cluster.start_node("n3")
    assert [one["nodes"] for one in run.attempts] == [["n1", "n2", "n3"], ["n1", "n2"]]
    assert run.attempts[0]["failed_on"] == "n3"
    assert "without n3: gone in the middle of the work" in (run.path / "logs/slurm-train.log").read_text()
    assert steps(run.path) == list(range(1, STEPS + 1))
    assert [one["consumed_samples"] for one in records(run.path)] == [12 * step for step in steps(run.path)]
    assert losses(run.path) == pytest.approx(losses(whole), abs=1e-4)


def test_the_time_limit_comes_and_a_node_is_drained_meanwhile(case: Path, cluster: Slurm):
    """Slurm's own signal; the job goes on elsewhere, and ends saved when it is asked to."""
    long = ("training.duration=5000 steps", "checkpoint.every=100 steps", "evaluation.every=5000 steps")
    limit = ("target.time_limit='2'", "target.signal_before_s=45")  # Slurm may signal a minute earlier
    run = Run(case, cluster, "limited", "target.nodes={min: 2, max: 3}", *long, *limit)
    run.wait_for_attempt(1)
    cluster.run("scontrol", "update", "nodename=n2", "state=drain", "reason=a fan")
    run.wait_for_attempt(2)
    cluster.run("scontrol", "update", f"jobid={run.number}", "TimeLimit=30")
    assert [one["nodes"] for one in run.attempts] == [["n1", "n2", "n3"], ["n1", "n3"]]
    first = run.attempts[0]
    assert (first["outcome"], first["why"], first["steps_lost"]) == ("stopped", "the time limit is near", 0)
    run.wait_for_step(first["step"] + 2)
    cluster.run("scancel", "--batch", "--signal=USR2", str(run.number))
    cluster.wait_for_state(run.number, "FAILED", timeout_s=JOB_S)
    second = run.attempts[1]
    assert (second["why"], second["then"], second["steps_lost"]) == ("stopped as asked", "end", 0)
    assert cluster.job(run.number)["ExitCode"] == "75:0"
    cluster.run("scontrol", "update", "nodename=n2", "state=resume")


def test_two_jobs_in_the_same_second_on_the_same_nodes(case: Path, cluster: Slurm):
    """T45."""
    here = "target.extra=['--nodelist=n1,n2']"
    shared = ("target.nodes=2", "target.exclusive=false", "target.processes_per_node=1", here)
    runs = [Run(case, cluster, name, *shared) for name in ("twin-1", "twin-2")]
    for run in runs:
        run.wait_for_end()
    met = [json.loads((run.path / "attempts/0001/meeting.json").read_text())["endpoint"] for run in runs]
    assert runs[0].attempts[0]["nodes"] == runs[1].attempts[0]["nodes"]
    assert met[0] != met[1]
    assert losses(runs[0].path) == losses(runs[1].path)


def test_a_full_shared_disk_keeps_the_last_good_step(
    case: Path, cluster: Slurm, whole: Path, mount_small: Callable[[Path, int], Path]
):
    small = mount_small(case / "small", 1500)
    settings = (f"runs={small}", "checkpoint.keep=50")
    run = Run(case, cluster, "full", *settings)
    run.path = small / "full"
    cluster.wait_for_state(run.number, "FAILED", timeout_s=JOB_S)
    assert cluster.job(run.number)["ExitCode"] == "7:0", run.log
    subprocess.run(["mount", "-o", "remount,size=50m", small], check=True)
    again = Run(case, cluster, "full", *settings)
    again.path = small / "full"
    again.wait_for_end()
    assert losses(again.path) == losses(whole)
    assert weights(again.path) == weights(whole)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, case: Path) -> Iterator[Slurm]:
    """Three nodes that come when they are needed and go when they are idle; the third never comes."""
    shape = Shape(3, dynamic=True)
    with (
        slurm(tmp_path_factory.mktemp("cloud") / "slurm", shape) as up,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in up.environment.items():
            patch.setenv(name, value)
        (up.folder / "no-capacity").write_text("c3\n")
        yield up


def test_without_capacity_for_one_node_the_others_train_and_are_released(case: Path, cloud: Slurm):
    run = Run(case, cloud, "cloud", "target.nodes={min: 2, max: 3}")
    run.wait_for_end()
    assert run.attempts[-1]["nodes"] == ["c1", "c2"]
    released = {"c1", "c2"}
    cloud.wait_for(
        lambda: all("POWERED_DOWN" in cloud.node(name)["State"] for name in released), "release", 60
    )


def test_capacity_that_never_comes_is_given_up_and_its_cost_told(case: Path, cloud: Slurm):
    """T55."""
    run = Run(case, cloud, "never", "target.wait_limit='0:25'")
    cloud.wait_for(lambda: bool(run.attempts), "giving up", 120)
    cloud.wait_for_state(run.number, "CANCELLED")
    (record,) = run.attempts
    assert record["outcome"] == "given up"
    assert "of 3 nodes came within 0:25 (target.wait_limit)" in record["why"]
    cloud.wait_for(
        lambda: all("POWERED_DOWN" in cloud.node(name)["State"] for name in ("c1", "c2")), "release", 60
    )
