"""A rank's part of the stage `train`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from job_case import kitae

from kitae.checkpoint import fetch
from kitae.parallel.mesh import Mesh
from kitae.stages.training import train_rank


def test_a_rank_does_not_say_again_what_the_starting_process_has_said(
    case: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """Where the model is; of the training itself it tells, on the terminal and in the log."""
    found = fetch.model_folder

    def told(source, *, base, cache, report):
        report("model: here it is")
        return found(source, base=base, cache=cache, report=report)

    monkeypatch.setattr(fetch, "model_folder", told)
    assert kitae("train", "recipe.yaml") == 0
    run = case / "runs/tiny"
    before = capsys.readouterr().out
    assert before.count("model: here it is") == 1
    for name in ("checkpoints", "evaluations", "logs"):
        shutil.rmtree(run / name)
    for name in ("metrics.jsonl", "results.json"):
        (run / name).unlink()
    train_rank(str(run), json.loads((run / "run.json").read_text())["train_key"], Mesh())
    lines = [line for line in before.splitlines() if line.startswith("held-out loss")]
    assert [line for line in capsys.readouterr().out.splitlines() if not line.startswith("step")] == lines
    assert "model: here it is" not in (run / "logs/rank-0.log").read_text()
    assert f" {lines[0]}\n" in (run / "logs/rank-0.log").read_text()
