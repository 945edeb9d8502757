"""`kitae scale` for real: strong and weak, with processes of this machine and on nodes of a real Slurm."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from demo_case import run_kitae
from job_case import write_case
from slurm import Slurm, slurm

RECIPE = {
    "training": {"duration": "60 steps", "global_batch_size": 12, "micro_batch_size": 1},
    "evaluation": {"every": "2 steps"},
    "checkpoint": {"every": "2 steps"},
    "target": {"time_limit": "10"},
}
QUICK = ("--steps", "4", "--warm-up", "2", "--repeats", "2")
WAIT_S = 120.0


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("scaling here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KITAE_CACHE", str(folder / "cache"))
        patch.setenv("OMP_NUM_THREADS", "1")
        write_case(folder, **RECIPE)
        yield folder


def scale(
    case: Path, *words: str, name: str = "tiny"
) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    """What was measured, and how the command ended."""
    done = run_kitae("scale", "recipe.yaml", "--set", f"name={name}", "--json", *QUICK, *words, folder=case)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done


def rows_of(found: dict[str, Any], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in found["widths"]]


BATCHES = ("width", "global_batch_size", "copies", "accumulation_steps", "micro_batch_size")


def test_strong_and_weak_with_processes_of_this_machine(case):
    strong, done = scale(case, "--workers", "1,2")
    assert rows_of(strong, *BATCHES) == [(1, 12, 1, 12, 1), (2, 12, 2, 6, 1)]
    assert strong["complete"]
    assert strong["losses"]["equal"]
    assert 0 <= strong["losses"]["difference"] < 1e-5
    losses = {tuple(one["losses"]) for one in strong["trials"] if one["width"] == 1}
    assert len(losses) == 1  # the same to the bit in every repeat
    (one, two) = strong["widths"]
    assert one["communication"]["worst"] == 0
    assert 0 < two["communication"]["mean"] <= two["communication"]["worst"] < 1
    assert two["predicted"]["step_s"] > 0
    assert [one["round"] for one in strong["trials"]] == ["1", "1", "2", "2"]
    assert [one["width"] for one in strong["trials"]] == [1, 2, 2, 1]
    assert done.stderr.count("import: logits differ") == 1
    again, done = scale(case, "--workers", "1,2")
    assert "all 4 measurements are there" in done.stderr
    assert again["trials"] == strong["trials"]
    weak, done = scale(case, "--workers", "1,2", "--weak", "--repeats", "1")
    assert rows_of(weak, *BATCHES) == [(1, 12, 1, 12, 1), (2, 24, 2, 12, 1)]
    assert weak["losses"] is None
    assert "logits differ" not in done.stderr  # weights were there
    for found in (strong, weak):
        for row in found["widths"]:
            tokens = row["global_batch_size"] * 32
            assert row["rate"]["median"] == pytest.approx(tokens / row["step_s"]["median"], rel=0.5)
            assert row["real_rate"] <= row["rate"]["high"]
    run = case / "runs/tiny"
    kept = json.loads((run / "scale/strong-workers/scale.json").read_text())
    assert kept["trials"] == strong["trials"]
    assert not list(run.rglob("checkpoints/step-*"))


class Started:
    """A measurement that something befalls."""

    def __init__(self, case: Path, name: str, *words: str) -> None:
        command = [
            sys.executable,
            "-m",
            "kitae",
            "scale",
            "recipe.yaml",
            "--set",
            f"name={name}",
            *QUICK,
            *words,
        ]
        self.folder = case / "runs" / name / "scale/strong-workers"
        self.process = subprocess.Popen(
            command, cwd=case, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            assert self.process.poll() is None, f"{what}: {self.process.communicate()[0]}"
            assert time.monotonic() < end, f"{what} did not come"
            time.sleep(0.05)

    def measured(self) -> int:
        return len(list(self.folder.glob("trials/*/measured.json")))

    def ranks(self) -> list[psutil.Process]:
        try:
            found = psutil.Process(self.process.pid).children(recursive=True)
            return [one for one in found if "kitae.launch.worker" in " ".join(one.cmdline())]
        except psutil.Error:
            return []

    def end(self) -> tuple[int, str]:
        output = self.process.communicate(timeout=WAIT_S)[0]
        return self.process.returncode, output


def test_what_was_killed_goes_on_with_what_is_missing(case):
    started = Started(case, "killed", "--workers", "1,2")
    started.wait_for(lambda: started.measured() == 1 and bool(started.ranks()), "the second measurement")
    ranks = started.ranks()
    started.process.kill()
    started.end()
    _, left = psutil.wait_procs(ranks, timeout=30)
    assert left == []
    before = {path: path.stat().st_mtime_ns for path in started.folder.glob("trials/*/measured.json")}
    found, done = scale(case, "--workers", "1,2", name="killed")
    assert f"{len(before)} of 4 measurements are there already" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert found["complete"]


def test_ctrl_c_keeps_what_there_is(case):
    started = Started(case, "stopped", "--workers", "1,2")
    started.wait_for(lambda: started.measured() == 1 and len(started.ranks()) == 2, "two processes")
    started.process.send_signal(signal.SIGINT)
    code, output = started.end()
    assert code == 75, output
    assert "measurements are missing, the others are kept in" in output
    assert json.loads((started.folder / "scale.json").read_text())["complete"] is False
    assert scale(case, "--workers", "1,2", name="stopped")[0]["complete"]


def test_a_width_that_dies_is_told_and_the_others_are_kept(case):
    started = Started(case, "dies", "--workers", "1,2")
    started.wait_for(lambda: len(started.ranks()) == 2, "two processes")
    started.ranks()[-1].kill()
    code, output = started.end()
    assert code == 0, output
    assert "2 workers: failed, and left out: rank" in output
    assert "killed by SIGKILL (out of memory?)" in output
    found = json.loads((started.folder / "scale.json").read_text())
    assert [row["repeats"] for row in found["widths"]] == [2, 0]
    assert "nothing to compare" in found["verdict"]
    assert scale(case, "--workers", "1,2", name="dies")[0]["complete"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, case: Path) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("cluster") / "slurm") as up, pytest.MonkeyPatch.context() as patch:
        for name, value in up.environment.items():
            patch.setenv(name, value)
        yield up


def test_strong_on_one_two_and_three_nodes_and_a_fourth_that_is_not_there(case, cluster):
    found, done = scale(case, "--nodes", "1,2,3,4", "--set", "target.price_per_node_hour=36", name="nodes")
    assert rows_of({"widths": found["widths"][:3]}, *BATCHES) == [
        (1, 12, 1, 12, 1),
        (2, 12, 2, 6, 1),
        (3, 12, 3, 4, 1),
    ]
    assert [row["repeats"] for row in found["widths"]] == [2, 2, 2, 0]
    assert "Partition" in found["widths"][3]["failed"]
    assert found["losses"]["equal"]
    assert found["fit"]["points"] == 4
    assert any("2 nodes: they are 1 host" in line for line in found["remarks"])
    for row in found["widths"][:3]:
        assert row["usd_an_hour"] == 36 * row["width"]
        cost = 36 * row["width"] / 3600 / row["rate"]["median"] * 1e6
        assert row["usd_per_million_tokens"] == pytest.approx(cost)
    assert "say what the nodes are with --instance" in found["warnings"][0]
    assert done.stderr.count("in the queue") == 1


def test_weak_on_one_two_and_three_nodes_taken_up_by_a_second_command(case, cluster):
    once = ("--nodes", "1,2,3", "--weak", "--repeats", "1")
    words = ("scale", "recipe.yaml", "--set", "name=weak", *QUICK, *once)
    left = run_kitae(*words, "--detach", folder=case)
    assert left.returncode == 75, left.stderr
    assert "submitted; 3 jobs go on in the queue" in left.stderr
    found, _ = scale(case, *once, name="weak")
    assert rows_of(found, *BATCHES) == [(1, 12, 1, 12, 1), (2, 24, 2, 12, 1), (3, 36, 3, 12, 1)]
    assert found["complete"]
    assert found["verdict"].startswith("weak scaling: ")
    intervals = sorted(ran(cluster, path) for path in (case / "runs/weak/scale").rglob("trials/*/slurm.json"))
    assert len(intervals) == 3
    assert all(end <= begin for (_, end), (begin, _) in pairwise(intervals))


def ran(cluster: Slurm, path: Path) -> tuple[str, str]:
    """When the job of a measurement began and ended."""
    job = cluster.job(json.loads(path.read_text())["jobs"][0]["number"])
    return job["StartTime"], job["EndTime"]


def test_text_that_is_not_there_is_told_by_the_first_job(case, cluster):
    words = ("--set", "name=broken", "--set", "data.train=[{path: nowhere.txt}]", "--nodes", "1,2")
    done = run_kitae("scale", "recipe.yaml", *QUICK, *words, folder=case)
    assert done.returncode == 8, done.stderr
    assert "text and weights could not be prepared" in done.stderr
    assert "nowhere.txt" in done.stderr
    assert cluster.run("squeue", "--noheader").strip() == ""
