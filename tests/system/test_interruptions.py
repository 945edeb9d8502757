"""A run that is killed, stopped, or out of disk loses nothing and goes on with the same command."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from demo_case import run_kitae
from job_case import write_case

LONG = {"training.duration": "30 steps", "checkpoint.every": "3 steps", "evaluation.every": "10 steps"}
SETTINGS = [word for key, value in LONG.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model, text and recipe of 30 steps; the import and the data are cached already."""
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    write_case(tmp_path)
    assert run_kitae("import", "recipe.yaml", *SETTINGS, folder=tmp_path).returncode == 0
    return tmp_path


def start(case: Path, name: str) -> subprocess.Popen[str]:
    """A run in the background."""
    words = ["run", "recipe.yaml", *SETTINGS, "--set", f"name={name}"]
    command = [sys.executable, "-m", "kitae.cli.main", *words]
    return subprocess.Popen(command, cwd=case, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def steps(case: Path, name: str) -> list[dict]:
    """The updates in the run's metrics."""
    lines = (case / "runs" / name / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == "train"]


def wait_for_step(case: Path, name: str, step: int, process: subprocess.Popen[str]) -> None:
    """Until the run has written that step down, or has ended."""
    metrics = case / "runs" / name / "metrics.jsonl"
    while process.poll() is None:
        if metrics.exists() and metrics.read_text().count('"kind": "train"') >= step:
            return
        time.sleep(0.005)


def finish(case: Path, name: str) -> list[dict]:
    """The run, taken to its end by the same command."""
    done = run_kitae("run", "recipe.yaml", *SETTINGS, "--set", f"name={name}", folder=case)
    assert done.returncode == 0, done.stderr
    return steps(case, name)


def test_ten_and_ten_and_ten_with_two_kills_is_thirty_straight(case: Path):
    straight = finish(case, "straight")
    for step in (10, 20):
        process = start(case, "killed")
        wait_for_step(case, "killed", step, process)
        process.kill()
        process.communicate()
    killed = finish(case, "killed")
    what = ("step", "loss", "grad_norm", "learning_rate", "consumed_samples")
    assert [[one[name] for name in what] for one in killed] == [
        [one[name] for name in what] for one in straight
    ]
    outcomes = [one["outcome"] for one in json.loads((case / "runs/killed/run.json").read_text())["attempts"]]
    assert outcomes == ["killed", "killed", "finished"]


def test_kills_at_random_moments_of_the_whole_journey(case: Path):
    """From starting to the proof: whatever was interrupted, the same command ends with the same model."""
    straight = finish(case, "straight")
    draw = random.Random(5)
    for _ in range(6):
        process = start(case, "random")
        time.sleep(draw.uniform(1.0, 6.0))
        process.kill()
        process.communicate()
    assert [one["loss"] for one in finish(case, "random")] == [one["loss"] for one in straight]
    exports = [
        (case / "runs" / name / "export/model.safetensors").read_bytes() for name in ("straight", "random")
    ]
    assert exports[0] == exports[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(case: Path, number: signal.Signals):
    process = start(case, "stopped")
    wait_for_step(case, "stopped", 4, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 75, errors
    assert "run the same command again to go on" in errors
    assert "Traceback" not in errors
    saved = len(steps(case, "stopped"))
    assert (case / f"runs/stopped/checkpoints/step-{saved:08d}/manifest.json").is_file()
    assert [one["step"] for one in finish(case, "stopped")] == list(range(1, 31))


def test_sigterm_before_the_training_loop_says_how_to_go_on(case: Path):
    """While torch and the weights are loaded, or whatever else it meets outside the loop."""
    process = start(case, "early")
    while not (case / "runs/early/run.json").exists():
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 75, errors
    assert "run the same command again to go on" in errors
    assert json.loads((case / "runs/early/run.json").read_text())["attempts"][-1]["outcome"] == "stopped"


@pytest.fixture
def small_disk(case: Path, mount_small: Callable[[Path, int], Path]) -> Path:
    """A file system of 640 KiB under `case/small`."""
    return mount_small(case / "small", 640)


def test_a_full_disk_keeps_the_last_good_step_and_names_path_and_need(case: Path, small_disk: Path):
    words = ["run", "recipe.yaml", *SETTINGS, "--set", f"runs={small_disk}", "--set", "checkpoint.keep=50"]
    done = run_kitae(*words, folder=case)
    assert done.returncode == 7, done.stderr
    assert str(small_disk / "tiny/checkpoints") in done.stderr
    assert "needed are" in done.stderr
    assert "Traceback" not in done.stderr
    saved = sorted((small_disk / "tiny/checkpoints").glob("step-*"))
    assert saved
    shutil.copytree(small_disk / "tiny", case / "runs/tiny", dirs_exist_ok=True)
    roomy = run_kitae("run", "recipe.yaml", *SETTINGS, "--set", "checkpoint.keep=50", folder=case)
    assert roomy.returncode == 0, roomy.stderr
    assert f"going on from {case / 'runs/tiny/checkpoints' / saved[-1].name}" in roomy.stdout
