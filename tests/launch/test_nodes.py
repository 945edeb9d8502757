"""Ranks on several machines, all of which are this one: what one machine's failure is for the others."""

from __future__ import annotations

import ast
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from kitae.errors import DataError, KitaeError, StoppedError, StorageError, TrainingError
from kitae.launch import nodes
from kitae.launch.failure import NodeLostError
from kitae.launch.helper import Helper
from kitae.launch.node import node_number, stop_file
from kitae.launch.nodes import launch_nodes
from kitae.launch.order import Launch
from kitae.watch.samples import read_samples

STARTER = (sys.executable, str(Path(__file__).with_name("start_everywhere.py")), "2")
DEADLINE_S = 60.0


def launch(folder: Path, timeout_s: float = 60.0, tp_size: int = 1, job: int = 1) -> Launch:
    return Launch(
        4,
        tp_size,
        "cpu",
        timeout_s,
        folder / "logs",
        attempt=folder / "attempts" / "0001",
        names=("left", "right"),
        addresses=("127.0.0.1", "127.0.0.2"),
        job=job,
    )


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))


def run(folder: Path, entry: str = "add", timeout_s: float = 60.0, **arguments: object) -> None:
    launch_nodes(
        f"rank_works:{entry}", {"folder": str(folder), **arguments}, launch(folder, timeout_s), STARTER
    )


def pids(folder: Path) -> list[int]:
    return [int(note.read_text()) for note in folder.glob("here-*")]


def failure(folder: Path, how: str, rank: int, timeout_s: float = 60.0) -> KitaeError:
    with pytest.raises(KitaeError) as raised:
        run(folder, "fail", timeout_s, rank=rank, how=how)
    assert not any(psutil.pid_exists(pid) for pid in pids(folder))
    return raised.value


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_all_ranks_of_all_machines_are_one_world(tmp_path: Path):
    run(tmp_path)
    facts = [ast.literal_eval((tmp_path / f"here-{rank}").read_text()) for rank in range(4)]
    assert [fact[:3] for fact in facts] == [(10.0, (0, 1, 2, 3), (rank,)) for rank in range(4)]
    first = (tmp_path / "logs/rank-3.log").read_text().splitlines()[0]
    assert "rank 3 of 4 (right, data-parallel rank 3, tensor-parallel rank 0), process" in first


def test_each_machine_has_its_helper(tmp_path: Path):
    """Which is told the machine's name, and ends with its ranks."""
    settings = {"run": str(tmp_path), "backend": "cpu", "period_s": 0.2}
    watched = replace(launch(tmp_path), helper=Helper("kitae.watch.sampler", settings))
    launch_nodes("rank_works:add", {"folder": str(tmp_path)}, watched, STARTER)
    found = read_samples(tmp_path)
    assert sorted(found) == ["left", "right"]
    tags = {process.tag for one in found["right"] for process in one.processes}
    assert tags >= {"launcher", "rank 2", "rank 3"}
    assert "rank 0" not in tags


def test_two_jobs_in_the_same_second_on_the_same_machines(tmp_path: Path):
    """T45."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, folders))
    ports = {ast.literal_eval((folder / "here-0").read_text())[3] for folder in folders}
    assert len(ports) == 2


def test_the_first_error_of_all_machines_is_raised_as_what_it_was(tmp_path: Path):
    error = failure(tmp_path, "error", 3)
    assert type(error) is DataError
    assert str(error) == "rank 3: row 7 is broken"


def test_a_killed_rank_is_named_with_its_machine(tmp_path: Path):
    error = failure(tmp_path, "kill", 2)
    assert str(error).startswith("rank 2 (process ")
    assert " on right) was killed by SIGKILL (out of memory?)" in str(error)


def test_a_stuck_rank_is_named_by_its_own_machine(tmp_path: Path):
    """The other one's ranks only wait, and say nothing."""
    error = failure(tmp_path, "freeze", 1, timeout_s=2.0)
    assert str(error).startswith("left: no rank has moved for 2 s")
    assert "all wait for rank 1 (process" in str(error)


def in_background(folder: Path) -> tuple[threading.Thread, list[BaseException]]:
    """A training that goes on until it is stopped."""
    raised: list[BaseException] = []

    def body() -> None:
        try:
            run(folder, "train")
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    until(lambda: all((folder / f"trains-{rank}").exists() for rank in range(4)))
    return thread, raised


def test_a_stop_reaches_all_through_the_first_machine(tmp_path: Path):
    thread, raised = in_background(tmp_path)
    stop_file(tmp_path / "attempts" / "0001").write_text("SIGTERM")
    thread.join(DEADLINE_S)
    (error,) = raised
    assert type(error) is StoppedError
    steps = {(tmp_path / f"saved-{rank}").read_text() for rank in range(4)}
    assert len(steps) == 1
    assert str(error) == f"stopped by SIGTERM after step {steps.pop()}"


def test_a_machine_that_is_gone_is_named_and_the_others_end(tmp_path: Path):
    thread, raised = in_background(tmp_path)
    launchers = [
        one
        for one in psutil.process_iter(["cmdline"])
        if str(tmp_path) in " ".join(one.info["cmdline"] or ()) and "kitae.launch.node" in one.info["cmdline"]
    ]
    right = [one for one in launchers if one.environ().get("SLURM_NODEID") == "1"]
    for one in right:
        one.send_signal(signal.SIGKILL)
    thread.join(DEADLINE_S)
    (error,) = raised
    assert type(error) is NodeLostError
    assert error.node == "right"
    assert "node right is gone" in str(error)
    until(lambda: not any(psutil.pid_exists(pid) for pid in pids(tmp_path)))


def test_a_starter_that_starts_nothing(tmp_path: Path, capfd: pytest.CaptureFixture):
    refusing = (sys.executable, "-c", "import sys; sys.exit('no such partition')")
    with pytest.raises(TrainingError, match=r"no node has begun: python\S* ended with code 1"):
        launch_nodes("rank_works:add", {"folder": str(tmp_path)}, launch(tmp_path), refusing)
    assert "no such partition" in capfd.readouterr().err


def test_a_machine_that_cannot_be_met_says_so(tmp_path: Path):
    from dataclasses import replace

    unreachable = replace(launch(tmp_path), addresses=("127.0.0.1", "192.0.2.7"))
    with pytest.raises(TrainingError, match=r"first node's address is 127\.0\.0\.1, which the others cannot"):
        launch_nodes("rank_works:add", {"folder": str(tmp_path)}, unreachable, STARTER)


def test_a_folder_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "attempts").write_text("in the way")
    with pytest.raises(StorageError, match="cannot write"):
        run(tmp_path)


def test_the_number_of_a_machine():
    assert node_number({"SLURM_NODEID": "3", "SLURM_PROCID": "7"}) == 3
    assert node_number({}) == 0


def test_what_an_earlier_attempt_left_is_not_taken_for_news(tmp_path: Path):
    run(tmp_path)
    attempt = tmp_path / "attempts" / "0001"
    left = {path.name for path in attempt.iterdir()}
    assert {"node-0.json", "node-1.json", "rank-3.json", "order.json", "meeting.json"} <= left
    refusing = (sys.executable, "-c", "")
    with pytest.raises(TrainingError, match="no node has begun"):
        launch_nodes("rank_works:add", {"folder": str(tmp_path)}, launch(tmp_path), refusing)
    assert nodes.stop_file(attempt).exists() is False
