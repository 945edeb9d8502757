"""A run on a real Slurm as a person follows it: looked at, ended, let go on elsewhere, and what failed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from demo_case import run_kitae
from job_case import write_case
from slurm import Shape, Slurm, slurm

STEPS = 300
RECIPE = {
    "training": {"duration": f"{STEPS} steps", "global_batch_size": 12, "micro_batch_size": 1},
    "checkpoint": {"every": "100 steps"},
    "evaluation": {"every": "never"},
    "target": {"kind": "slurm", "nodes": 2, "price_per_node_hour": 36.0},
}
JOB_S = 240.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("cluster") / "slurm"
    with slurm(folder, Shape(nodes=2)) as up, pytest.MonkeyPatch.context() as patch:
        for name, value in {**up.environment, "OMP_NUM_THREADS": "1"}.items():
            patch.setenv(name, value)
        yield up


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cluster: Slurm) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("followed")
    write_case(folder, **RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KITAE_CACHE", str(folder / "cache"))
        yield folder


def kitae(folder: Path, *words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_kitae(*words, folder=folder)
    assert done.returncode == code, f"{words}: {done.stdout}{done.stderr}"
    return done


def seen(folder: Path, name: str) -> dict[str, Any]:
    """What `kitae ps` says of a run."""
    return next(one for one in json.loads(kitae(folder, "ps", "--json").stdout) if one["run"] == name)


def steps(run: Path) -> list[int]:
    with suppress(FileNotFoundError):
        lines = [
            json.loads(one) for one in (run / "metrics.jsonl").read_text().splitlines(True) if one[-1] == "\n"
        ]
        return [one["step"] for one in lines if one["kind"] == "train"]
    return []


def wait_for_step(cluster: Slurm, folder: Path, name: str, step: int) -> None:
    cluster.wait_for(lambda: steps(folder / "runs" / name)[-1:] >= [step], f"step {step}", JOB_S)


def test_a_run_is_followed_ended_and_goes_on_on_fewer_nodes(folder: Path, cluster: Slurm):
    kitae(folder, "train", "recipe.yaml", "--set", "name=a")
    command = [sys.executable, "-m", "kitae.cli.main", "logs", "a", "-f"]
    with subprocess.Popen(command, cwd=folder, stdout=-1, stderr=-1, text=True) as follower:
        wait_for_step(cluster, folder, "a", 5)
        works = seen(folder, "a")
        assert (works["state"], works["steps"], works["node_count"]) == ("running", STEPS, 2)
        assert works["why"] == f"train, job {works['job']}"
        assert works["cost_usd"] > 0
        assert works["seconds_left"] > 0
        assert works["last_sign_s"] < 60
        ended = kitae(folder, "cancel", "a").stderr
        assert f"asked to save and end: job {works['job']}" in ended
        assert "a: stopped: stopped as asked" in ended
        shown, told = follower.communicate(timeout=60)
    assert follower.returncode == 0
    assert "node check: 2 nodes are well" in shown
    assert "a: stopped: stopped as asked" in told
    stopped = seen(folder, "a")
    attempts = json.loads((folder / "runs/a/run.json").read_text())["attempts"]
    assert (stopped["state"], attempts[-1]["steps_lost"]) == ("stopped", 0)
    assert 5 <= stopped["step"] < STEPS
    assert attempts[-1]["nodes"] == ["n1", "n2"]
    again = kitae(folder, "resume", "a", "--nodes", "1")
    assert "on 1 nodes" in again.stdout
    cluster.wait_for(lambda: seen(folder, "a")["state"] == "done", "the end", JOB_S)
    assert steps(folder / "runs/a") == list(range(1, STEPS + 1))
    attempts = json.loads((folder / "runs/a/run.json").read_text())["attempts"]
    assert attempts[-1]["nodes"] == ["n1"]
    assert kitae(folder, "logs", "a", "--first-failure").stderr.startswith("nothing has failed")


def test_a_run_that_waits_is_taken_out_of_the_queue(folder: Path, cluster: Slurm):
    cluster.run("scontrol", "update", "partitionname=main", "state=down")
    kitae(folder, "train", "recipe.yaml", "--set", "name=b", "--set", "seed=5")
    waits = seen(folder, "b")
    assert (waits["state"], waits["attempt"]) == ("waiting", 0)
    assert "b: waiting: " in kitae(folder, "resume", "b", code=1).stderr
    assert "b: stopped: cancelled while it waited" in kitae(folder, "cancel", "b").stderr
    assert cluster.run("squeue", "--noheader").strip() == ""
    cluster.run("scontrol", "update", "partitionname=main", "state=up")


def test_the_rank_that_was_killed_is_the_first_failure(folder: Path, cluster: Slurm):
    """Its job goes on; the other rank only lost its peer."""
    kitae(folder, "train", "recipe.yaml", "--set", "name=c")
    wait_for_step(cluster, folder, "c", 5)
    number = str(seen(folder, "c")["job"])
    for process in psutil.process_iter(["cmdline"]):
        with suppress(psutil.Error):
            if "kitae.launch.worker" not in " ".join(process.info["cmdline"] or ()):
                continue
            around = process.environ()
            if around.get("SLURM_JOB_ID") == number and around.get("SLURMD_NODENAME") == "n2":
                process.send_signal(signal.SIGKILL)
    run = folder / "runs/c"

    def goes_on() -> bool:
        attempts = json.loads((run / "run.json").read_text())["attempts"]
        return len([one for one in attempts if one.get("last") == "train" and one.get("nodes")]) >= 2

    cluster.wait_for(goes_on, "another attempt", JOB_S)
    found = kitae(folder, "logs", "c", "--first-failure").stdout
    assert ", rank 1, n2, data-parallel rank 1" in found.splitlines()[0]
    assert "on n2) was killed by SIGKILL (out of memory?)" in found
    kitae(folder, "cancel", "c", "--now")
    assert seen(folder, "c")["state"] == "stopped"
