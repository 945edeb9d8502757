"""The process that looks after jobs while they wait."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kitae.launch.slurm.attend import Attendant, Waiting, there_already, waits_for_nodes
from kitae.launch.slurm.money import cost_text, cost_usd
from kitae.launch.slurm.parse import JobState, NodeState
from kitae.launch.slurm.record import StageJob, write_jobs, write_without
from kitae.recipe.target import TargetConfig

WAITING = JobState(3, "x.train", "PENDING", "Resources", "", 4, 0.0, 0.0)
BOOTING = replace(WAITING, state="CONFIGURING", reason="None", nodes="c[1-4]")
HELD = replace(WAITING, reason="BeginTime")
RUNNING = replace(BOOTING, state="RUNNING")


def test_the_cost_of_a_wait():
    """T55: 3 of 4 nodes for 20 minutes cost 3 x 20/60 x the price."""
    target = TargetConfig(kind="slurm", nodes=4, wait_limit="20", price_per_node_hour=21.5)
    waiting = Waiting()
    for _ in range(119):
        waiting.look(BOOTING, 3, 10.0)
    assert waiting.verdict(target) == ""
    waiting.look(BOOTING, 3, 10.0)
    assert waiting.verdict(target) == (
        "3 of 4 nodes came within 20 (target.wait_limit): given up and released; the waiting cost $21.50"
    )
    assert cost_usd(3, 1200, 21.5) == pytest.approx(3 * 20 / 60 * 21.5)
    assert cost_usd(3, 1200, None) is None
    assert "unknown" in cost_text(None)
    waiting.look(RUNNING, 4, 10.0)
    assert waiting.seconds == 0
    assert Waiting(1e9).verdict(TargetConfig(kind="slurm")) == ""


def test_what_counts_as_waiting_for_nodes():
    assert waits_for_nodes(WAITING)
    assert waits_for_nodes(BOOTING)
    assert not waits_for_nodes(RUNNING)
    assert not waits_for_nodes(HELD)
    assert not waits_for_nodes(replace(WAITING, reason="Dependency"))
    nodes = [
        NodeState("c1", frozenset({"IDLE"}), ""),
        NodeState("c2", frozenset({"MIXED", "POWERING_UP"}), ""),
        NodeState("c3", frozenset({"DOWN"}), "(Code:InsufficientInstanceCapacity)"),
    ]
    assert there_already(nodes) == 1


class Queue:
    """A Slurm with one job that waits."""

    def __init__(self, job: JobState, restarts: int = 1) -> None:
        self.job, self.restarts = job, restarts
        self.changed: list[dict[str, str]] = []
        self.cancelled: list[int] = []

    def jobs(self, numbers):
        return {self.job.number: self.job}

    def record(self, number):
        return {"Restarts": str(self.restarts)}

    def change(self, number, values):
        self.changed.append(values)

    def cancel(self, numbers):
        self.cancelled += numbers

    def host_names(self, nodes):
        return ["c1", "c2"]

    def nodes(self, names):
        return {name: NodeState(name, frozenset({"IDLE"}), "") for name in names}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    text = """\
kitae: 1
name: x
model: {preset: llama-tiny}
data: {tokenizer: {folder: words}, train: [{path: a.txt}]}
training: {duration: 20 steps}
target: {kind: slurm, nodes: 3, wait_limit: '1', price_per_node_hour: 36}
"""
    (tmp_path / "submitted.yaml").write_text(text)
    write_jobs(tmp_path, [StageJob("train", 3), StageJob("prove", 4)])
    return tmp_path


def test_a_job_that_was_queued_again_begins_at_once_without_bad_nodes(run: Path):
    queue = Queue(HELD)
    assert Attendant(run, queue).look()
    assert queue.changed == [{"StartTime": "now"}]
    write_without(run, {"n2": "down", "n5": "slow"})
    Attendant(run, queue).look()
    assert queue.changed[1] == {"ExcNodeList": "n2,n5", "StartTime": "now"}


def test_a_job_that_a_person_wants_to_begin_later_does(run: Path):
    queue = Queue(HELD, restarts=0)
    Attendant(run, queue).look()
    assert queue.changed == []


def test_a_wait_beyond_the_limit_cancels_the_chain_and_is_written_down(run: Path):
    times = iter([0.0, 30.0, 65.0])
    queue = Queue(BOOTING)
    attendant = Attendant(run, queue, lambda: next(times))
    attendant.look()
    assert queue.cancelled == []
    attendant.look()
    assert queue.cancelled == [3, 4]
    (told,) = json.loads((run / "run.json").read_text())["attempts"]
    assert told["outcome"] == "given up"
    assert "2 of 3 nodes came within 1 (target.wait_limit)" in told["why"]
    assert "the waiting cost $1.30" in told["why"]


def test_it_ends_with_the_last_job(run: Path):
    assert not Attendant(run, Queue(replace(WAITING, state="COMPLETED"))).look()
