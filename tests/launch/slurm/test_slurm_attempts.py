"""What run.json tells of attempts, and what counts as a failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kitae.launch.slurm.allocation import Allocation
from kitae.launch.slurm.attempts import Attempts
from kitae.launch.slurm.decide import Move, Record
from kitae.launch.slurm.parse import NodeState

HERE = Allocation(7, 1, ("n1", "n2"))
BASE = {"started": "2026-11-30T10:00:00+00:00", "job": 7, "nodes": ["n1", "n2"], "price_per_node_hour": 36.0}
ENDED = {"ended": "2026-11-30T10:30:00+00:00"}


class Nodes:
    """A Slurm in which n2 is down."""

    def nodes(self, names):
        down = NodeState("n2", frozenset({"DOWN"}), "Not responding")
        return {"n1": NodeState("n1", frozenset({"IDLE"}), ""), "n2": down}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that trained 12 steps and saved 10."""
    lines = [json.dumps({"kind": "train", "step": step}) for step in range(1, 13)]
    lines += [json.dumps({"kind": "evaluation", "step": 12}), '{"kind": "tra']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    for step in (5, 10):
        (tmp_path / f"checkpoints/step-{step:08d}").mkdir(parents=True)
    (tmp_path / "checkpoints/.tmp-step-00000012-1-aa").mkdir()
    return tmp_path


def write(run: Path, *attempts: dict) -> None:
    (run / "run.json").write_text(json.dumps({"attempts": list(attempts), "stages": {}}))


def last(run: Path) -> dict:
    return json.loads((run / "run.json").read_text())["attempts"][-1]


def test_an_attempt_says_what_was_lost_and_what_it_cost(run: Path):
    write(run, {**BASE, **ENDED, "outcome": "failed"})
    attempts = Attempts(run, HERE)
    attempts.note(Move("again", "rank 1 was killed"))
    told = last(run)
    assert (told["step"], told["saved_step"], told["steps_lost"]) == (12, 10, 2)
    assert (told["why"], told["then"]) == ("rank 1 was killed", "again")
    assert told["cost_usd"] == pytest.approx(2 * 0.5 * 36.0)


def test_an_attempt_that_ended_with_its_node_is_closed_by_the_next(run: Path):
    write(run, {**BASE, "ended": None, "outcome": "running"})
    attempts = Attempts(run, HERE)
    told = attempts.close_lost(Nodes())
    assert told == "attempt 1 ended from outside: n2 is down (Not responding); 2 steps are repeated"
    record = last(run)
    assert (record["outcome"], record["failed_on"], record["steps_lost"]) == ("killed", "n2", 2)
    assert attempts.record() == Record(1, {"n2": 1})
    assert attempts.close_lost(Nodes()) == ""


def test_only_failures_of_this_job_count(run: Path):
    """Saves before a time limit do not, unless they saved nothing new."""
    write(
        run,
        {**BASE, **ENDED, "job": 6, "outcome": "failed", "failed_on": "n1"},
        {**BASE, **ENDED, "outcome": "failed", "failed_on": "n1"},
        {**BASE, **ENDED, "outcome": "stopped", "from_step": 0, "saved_step": 5},
        {**BASE, **ENDED, "outcome": "stopped", "from_step": 5, "saved_step": 5},
        {**BASE, **ENDED, "outcome": "failed", "failed_on": "n1"},
        {**BASE, **ENDED, "outcome": "finished"},
    )
    assert Attempts(run, HERE).record() == Record(3, {"n1": 2})


def test_a_run_without_metrics_has_lost_nothing(tmp_path: Path):
    write(tmp_path, {**BASE, **ENDED, "outcome": "failed"})
    Attempts(tmp_path, HERE).note(Move("end", "no"))
    assert last(tmp_path)["steps_lost"] == 0
