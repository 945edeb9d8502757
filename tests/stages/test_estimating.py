"""Plans of this machine: of a folder's headers alone, into the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from job_case import kitae

import kitae as kitae_package
from kitae.stages.estimating import open_plan, shape_of, tensor_names
from kitae.stages.importing import find_start


def test_a_folder_is_known_by_its_headers(case: Path):
    names = tensor_names(case / "model")
    assert "model.embed_tokens.weight" in names
    assert "__metadata__" not in names
    job = open_plan(case / "recipe.yaml")
    found, start = shape_of(job, guess=False), find_start(job)
    assert (found.config, found.tied) == (start.config, start.tied)
    (case / "model/model.safetensors").write_bytes(b"broken")
    assert tensor_names(case / "model") == set()


def test_the_run_has_the_plan_with_activations_and_time(case: Path, capsys: pytest.CaptureFixture):
    assert kitae("plan", "recipe.yaml") == 0
    plan = json.loads((case / "runs/tiny/plan.json").read_text())
    estimate = plan["estimate"]
    assert estimate["memory"]["state"] == plan["bytes"]
    assert estimate["memory"]["peak"] > plan["state_bytes"]
    assert (estimate["verdict"], estimate["steps"], estimate["cost"]) == ("fits", 6, None)
    assert "fits: " in capsys.readouterr().out
    state = json.loads((case / "runs/tiny/run.json").read_text())
    assert state["stages"]["plan"]["state_bytes"] == plan["state_bytes"]


def test_a_run_does_not_plan_again_what_the_verb_planned(case: Path, capsys: pytest.CaptureFixture):
    assert kitae("plan", "recipe.yaml") == 0
    capsys.readouterr()
    assert kitae("prepare", "recipe.yaml") == 0
    assert "plan: skipped, its result is there" in capsys.readouterr().out


def test_json_is_all_that_is_printed(case: Path, capsys: pytest.CaptureFixture):
    assert kitae("plan", "recipe.yaml", "--json") == 0
    assert json.loads(capsys.readouterr().out)["estimate"]["sentence"].startswith("fits")


def test_a_folder_is_planned_without_torch(case: Path):
    code = "import sys; from kitae.cli.main import main; code = main(['plan', 'recipe.yaml']); "
    code += "sys.exit(code or 3 * ('torch' in sys.modules))"
    home = str(Path(kitae_package.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": home})
    assert done.returncode == 0


def test_a_tokenizer_folder_that_is_missing_is_named(case: Path, capsys: pytest.CaptureFixture):
    changes = ["--set", "model={preset: llama-tiny}", "--set", "data.tokenizer={folder: nowhere}"]
    assert kitae("plan", "recipe.yaml", *changes, "--set", "name=other") == 4
    assert "nowhere does not exist" in capsys.readouterr().err
    assert kitae("plan", "recipe.yaml", *changes, "--instance", "trn1.2xlarge", "--nodes", "1") == 4


def test_a_tokenizer_that_would_be_fetched_is_assumed_without_torch(
    case: Path, capsys: pytest.CaptureFixture
):
    """A named one comes out of a package; the run itself plans again, with the real one."""
    words = ["--set", "model={preset: llama-tiny}", "--set", "data.tokenizer={named: smollm2-135m}"]
    code = (
        "import sys; from kitae.cli.main import main; code = main(['plan', 'recipe.yaml', *sys.argv[1:]]); "
    )
    code += "sys.exit(code or 3 * ('torch' in sys.modules))"
    home = str(Path(kitae_package.__file__).parents[1])
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": home}, capture_output=True, text=True)
    assert done.returncode == 0
    assert "plan: assumed: the tokenizer is not here: 512 rows of the vocabulary" in done.stdout
    plan = json.loads((case / "runs/tiny/plan.json").read_text())
    assert plan["estimate"]["assumptions"][0].startswith("the tokenizer is not here")
    assert "plan" not in json.loads((case / "runs/tiny/run.json").read_text())["stages"]
