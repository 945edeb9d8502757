"""Trainings in several processes, started, stopped, killed and gone on with as a person does it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from demo_case import run_kitae
from job_case import write_case

STEPS = 40
SETTINGS = {
    "training.duration": f"{STEPS} steps",
    "checkpoint.every": "4 steps",
    "evaluation.every": "10 steps",
    "parallel.data_parallel_size": "2",
}
WORDS = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, text and recipe; and a run of it in one process, `one`."""
    folder = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KITAE_CACHE", str(folder / "cache"))
        patch.setenv("OMP_NUM_THREADS", "1")
        write_case(folder)
        done = run(folder, "one", "parallel.data_parallel_size=1")
        assert done.returncode == 0, done.stderr
        yield folder


def command(name: str, *changes: str) -> list[str]:
    more = [word for change in changes for word in ("--set", change)]
    return ["train", "recipe.yaml", *WORDS, "--set", f"name={name}", *more]


def run(case: Path, name: str, *changes: str) -> subprocess.CompletedProcess[str]:
    return run_kitae(*command(name, *changes), folder=case, timeout_s=300)


def start(case: Path, name: str, *changes: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "kitae.cli.main", *command(name, *changes)]
    return subprocess.Popen(words, cwd=case, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def losses(case: Path, name: str) -> list[float]:
    lines = (case / "runs" / name / "metrics.jsonl").read_text().splitlines()
    return [record["loss"] for record in map(json.loads, lines) if record["kind"] == "train"]


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)


def wait_for_step(case: Path, name: str, step: int, process: subprocess.Popen[str]) -> None:
    metrics = case / "runs" / name / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_text().count('"kind": "train"') >= step, process)


def ranks_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children()
    return sorted(
        (one for one in children if "kitae.launch.worker" in " ".join(one.cmdline())), key=lambda one: one.pid
    )


def ended(process: subprocess.Popen[str], ranks: list[psutil.Process]) -> str:
    """The errors that the run told, once it and its ranks are gone."""
    message = process.communicate(timeout=120)[1]
    assert not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks)
    assert "Traceback" not in message
    return message


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("dp2", ["parallel.data_parallel_size=2"]),
        ("tp2", ["parallel.data_parallel_size=1", "parallel.tensor_parallel_size=2"]),
        ("dp2-sp2", ["parallel.tensor_parallel_size=2", "parallel.sequence_parallel=true"]),
    ],
)
def test_the_same_training_whatever_the_cut(case: Path, name: str, changes: list[str]):
    done = run(case, name, *changes)
    assert (done.returncode, done.stderr) == (0, "")
    assert losses(case, name) == pytest.approx(losses(case, "one"), abs=1e-4)
    assert losses(case, name)[:20] == pytest.approx(losses(case, "one")[:20], abs=1e-5)


@pytest.mark.parametrize("target", ["parent", "rank 1"])
def test_sigterm_saves_one_step_and_the_same_command_goes_on(case: Path, target: str):
    """T43, to the process that was started, or to any rank: 75, one complete checkpoint, to the bit."""
    name = f"stopped-{target[-1]}"
    process = start(case, name)
    wait_for_step(case, name, 7, process)
    ranks = ranks_of(process)
    (psutil.Process(process.pid) if target == "parent" else ranks[1]).send_signal(signal.SIGTERM)
    message = ended(process, ranks)
    assert process.returncode == 75, message
    assert f"of {STEPS}; it is saved in" in message
    assert run(case, name).returncode == 0
    whole = run(case, "whole")
    assert whole.returncode == 0
    assert losses(case, name) == losses(case, "whole")


def test_sigterm_in_warm_up_is_not_lost(case: Path):
    process = start(case, "warm-up")
    wait_for(lambda: len(ranks_of(process)) == 2, process)
    ranks = ranks_of(process)
    ranks[1].send_signal(signal.SIGTERM)
    message = ended(process, ranks)
    assert process.returncode == 75, message
    assert "stopped by SIGTERM after step 0 of 40; nothing was trained yet" in message


def test_a_killed_rank_is_named_and_nothing_is_lost(case: Path):
    process = start(case, "killed")
    wait_for_step(case, "killed", 7, process)
    ranks = ranks_of(process)
    ranks[1].kill()
    message = ended(process, ranks)
    assert process.returncode == 5
    assert f"rank 1 (process {ranks[1].pid}) was killed by SIGKILL" in message
    assert run(case, "killed").returncode == 0
    assert losses(case, "killed") == pytest.approx(losses(case, "one"), abs=1e-4)


def test_a_stopped_rank_is_named(case: Path):
    process = start(case, "stuck", "parallel.timeout_s=3")
    wait_for_step(case, "stuck", 5, process)
    ranks = ranks_of(process)
    ranks[0].suspend()
    message = ended(process, ranks)
    assert process.returncode == 5
    assert "no rank has moved for 3 s" in message
    assert f"rank 0 (process {ranks[0].pid}, data-parallel rank 0, tensor-parallel rank 0, stopped" in message


def test_an_error_of_a_rank_is_the_commands_own(case: Path):
    """A learning rate that makes the loss infinite: the same code and kind as in one process."""
    changes = ("optimizer.learning_rate=1e30", "optimizer.max_grad_norm=null")
    here, there = (run(case, f"broken-{n}", *changes, f"parallel.data_parallel_size={n}") for n in (1, 2))
    assert (here.returncode, there.returncode) == (5, 5)
    assert there.stderr.startswith("error: ")
    assert there.stderr.count("\n") == here.stderr.count("\n")
