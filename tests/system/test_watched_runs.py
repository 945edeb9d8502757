"""Trainings that are watched: alone, in several ranks, on nodes of a real Slurm, and killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from demo_case import run_kitae
from job_case import write_case
from slurm import slurm

from kitae.watch.samples import latest_samples, read_samples

STEPS = 60
SETTINGS = {
    "training": {"duration": f"{STEPS} steps", "global_batch_size": 4, "micro_batch_size": 1},
    "evaluation": {"every": "60 steps"},
    "watch": {"period_s": 0.5},
}


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    write_case(tmp_path, **SETTINGS)
    return tmp_path


def wait_for(what: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def samplers(run: Path) -> list[psutil.Process]:
    """Of a run: they hold its lock files open."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with suppress(psutil.Error):
            if "kitae.watch.sampler" in " ".join(process.info["cmdline"] or ()):
                held = [Path(one.path) for one in process.open_files()]
                found += [process] * any(path.is_relative_to(run) for path in held)
    return found


def steps(run: Path) -> list[int]:
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [one["step"] for one in records if one["kind"] == "train"]


def start(case: Path, *changes: str) -> subprocess.Popen[str]:
    settings = [word for change in changes for word in ("--set", change)]
    command = [sys.executable, "-m", "kitae.cli.main", "train", "recipe.yaml", *settings]
    return subprocess.Popen(command, cwd=case, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ranks_of_a_machine_are_told_apart(case: Path):
    process = start(case, "target.processes_per_node=2")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    (samples,) = read_samples(case / "runs/tiny").values()
    assert {one.tag for sample in samples for one in sample.processes} >= {"launcher", "rank 0", "rank 1"}
    assert samplers(case / "runs/tiny") == []


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_however_a_training_ends_nobody_watches_on(case: Path, ranks: int, number: signal.Signals):
    run = case / "runs/tiny"
    process = start(case, f"target.processes_per_node={ranks}", "training.duration=5000 steps")
    wait_for(lambda: latest_samples(run) or process.poll() is not None)
    assert len(samplers(run)) == 1
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (75, 130, -number), errors
    wait_for(lambda: samplers(run) == [])
    assert "Traceback" not in errors


def test_a_training_whose_sampler_is_killed_goes_on(case: Path):
    run = case / "runs/tiny"
    process = start(case, "training.duration=400 steps")
    wait_for(lambda: latest_samples(run) or process.poll() is not None)
    samplers(run)[0].kill()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert steps(run)[-1] == 400


def test_both_nodes_of_a_job_are_watched_and_an_alarm_is_told(
    case: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
):
    """The budget of a cent is spent within seconds: the leading process says so, on the first node."""
    told = case / "told.jsonl"
    changes = (
        *("target.kind=slurm", "target.nodes=2", "target.processes_per_node=1", 'target.time_limit="30"'),
        *("target.price_per_node_hour=3600", "target.node_check=false", "watch.alarms.budget_usd=0.01"),
        f"watch.alarms.command=cat >> '{told}'",
    )
    with slurm(tmp_path_factory.mktemp("cluster") / "slurm") as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        settings = [word for change in changes for word in ("--set", change)]
        done = run_kitae("train", "recipe.yaml", *settings, folder=case)
        assert done.returncode == 0, done.stderr
        run = case / "runs/tiny"
        last = max(job["number"] for job in json.loads((run / "slurm.json").read_text())["jobs"])
        cluster.wait_for_state(last, "COMPLETED", timeout_s=150.0)
        wait_for(lambda: samplers(run) == [])
    assert sorted(read_samples(run)) == ["n1", "n2"]
    for samples in read_samples(run).values():
        assert {one.tag for sample in samples for one in sample.processes} >= {"launcher"}
    state = json.loads((run / "run.json").read_text())
    alarms = [one for one in state["alarms"] if one["name"] == "budget-at-80-percent"]
    assert [(one["level"], one["attempt"], one["node"]) for one in alarms] == [
        ("critical", state["attempts"].index(state["attempts"][-1]) + 1, None)
    ]
    assert alarms[0]["ended"] is not None, "with the attempt"
    assert "alarm: budget-at-80-percent (critical)" in (run / "logs/rank-0.log").read_text()
    assert "budget-at-80-percent" in told.read_text()
