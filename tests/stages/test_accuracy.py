"""A training writes down how its plan did: in the run, and in the history; it never fails of that."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from job_case import kitae

from kitae.plan import history
from kitae.stages import accuracy
from kitae.stages.accuracy import predictions
from kitae.stages.job import open_job
from kitae.train.metrics import read_records


def test_a_training_is_held_against_its_plan(case: Path):
    assert kitae("train", "recipe.yaml", "--set", "checkpoint.every=3 steps") == 0
    (one,) = json.loads((case / "runs/tiny/accuracy.json").read_text())["attempts"]
    plan = json.loads((case / "runs/tiny/plan.json").read_text())["estimate"]
    records = list(read_records(case / "runs/tiny/metrics.jsonl"))
    updates = [record for record in records if record["kind"] == "train"]
    actual, predicted = one["actual"], one["predicted"]
    assert (one["attempt"], one["phase"], one["steps"]) == (1, None, 5)
    assert actual["step_s"] == sorted(record["step_seconds"] for record in updates[1:])[2]
    assert actual["step_best_s"] == min(record["step_seconds"] for record in updates[1:])
    assert actual["memory_bytes"] == max(record["peak_memory_bytes"] for record in updates)
    assert actual["evaluate_s"] > 0
    assert 0 <= actual["start_s"] < 120
    newest = sorted((case / "runs/tiny/checkpoints").glob("step-*"))[-1]
    assert actual["checkpoint_bytes"] == sum(file.stat().st_size for file in newest.iterdir())
    saves = [json.loads(line) for line in (case / "runs/tiny/saves.jsonl").read_text().splitlines()]
    assert [save["step"] for save in saves] == [3, 6]
    assert min(s["seconds"] for s in saves) <= actual["checkpoint_s"] <= max(s["seconds"] for s in saves)
    assert predicted["step_s"] == plan["phases"][0]["step_s"]
    assert predicted["memory_bytes"] == plan["memory"]["device_used"]
    (entry,) = history.read()
    assert (entry.run, entry.family, entry.ranks) == (str(case / "runs/tiny"), "decoder", 1)
    assert entry.actual == actual
    assert entry.counts["update.call"] == 1


def test_what_a_stopped_training_showed_is_kept_and_a_second_attempt_stands_beside_it(case: Path):
    assert kitae("train", "recipe.yaml", "--set", "checkpoint.every=2 steps") == 0
    state = json.loads((case / "runs/tiny/run.json").read_text())
    state["stages"].pop("train")
    (case / "runs/tiny/run.json").write_text(json.dumps(state))
    (case / "runs/tiny/results.json").unlink()
    longer = ["--set", "checkpoint.every=2 steps"]
    assert kitae("train", "recipe.yaml", *longer) == 0  # all is done: no update, nothing new
    assert len(history.read()) == 1


def test_a_history_that_cannot_be_written_harms_no_training(
    case: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    (case / "file").write_text("")
    monkeypatch.setenv("KITAE_STATE", str(case / "file"))
    assert kitae("train", "recipe.yaml") == 0
    out = capsys.readouterr().out
    assert out.count("how the plan did is not kept") == 1
    assert (case / "runs/tiny/results.json").is_file()


def test_nothing_is_written_before_an_attempt_has_made_updates(case: Path):
    assert kitae("train", "recipe.yaml") == 0
    job = open_job(case / "runs/tiny", report=lambda line: None)
    accuracy.keep_accuracy(job, time.time() + 60)
    assert len(history.read()) == 1


def test_a_plan_without_an_estimate_predicts_nothing():
    assert predictions({}, None) == {}
    assert predictions({"estimate": None}, None) == {}


def test_a_training_that_no_plan_was_made_for_is_kept_and_teaches_nothing(case: Path):
    assert kitae("plan", "recipe.yaml") == 0
    plan = case / "runs/tiny/plan.json"
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "estimate": None, "experience": []}))
    assert kitae("train", "recipe.yaml") == 0
    (entry,) = history.read()
    assert (entry.family, entry.precision, entry.ranks, entry.counts) == ("decoder", "fp32", 1, {})
    assert entry.predicted == {}
    assert entry.actual["step_s"] > 0
