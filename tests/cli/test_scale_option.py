"""`--scale-down cpu` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kitae.cli.main import main

RECIPES = Path(__file__).parents[2] / "recipes"
LLAMA = str(RECIPES / "llama3.1-8b-cpt-trn1.yaml")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))


def test_explain_says_what_changed_and_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["explain", LLAMA, "--scale-down", "cpu"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("scaled down to cpu: 12 changes of ")
    assert "32 layers of 4096, 32/8 heads become 2 layers of 128, 8/2 heads; random weights" in out
    line = next(line for line in out.splitlines() if line.startswith("parallel.tensor_parallel_size"))
    assert line.split()[1:3] == ["4", "--scale-down"]
    assert not (tmp_path / "cache").exists()


def test_a_plan_of_the_small_recipe_fits_here(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["plan", LLAMA, "--scale-down", "cpu", "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert (found["tensor_parallel_size"], found["data_parallel_size"]) == (4, 2)
    assert found["estimate"]["verdict"] == "fits"
    assert "12 changes" in said.err
    record = json.loads((tmp_path / "runs/llama3.1-8b-cpt-trn1-small/scaled-down.json").read_text())
    changes = {one["path"]: one for one in record["changes"]}
    assert changes["training.duration"] == {
        "path": "training.duration",
        "before": "10000 steps",
        "after": "12 steps",
        "why": "at most 12 updates",
    }


def test_the_plan_without_it_says_where_the_recipe_fits(capsys: pytest.CaptureFixture):
    assert main(["plan", LLAMA]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "it trains elsewhere (target.kind slurm)" in out
    assert "--scale-down cpu makes it small enough" in out
    assert "use a smaller model" not in out


def test_a_length_that_only_the_small_recipe_bears_is_taken(capsys: pytest.CaptureFixture):
    words = ["explain", LLAMA, "--scale-down", "cpu", "--set", "training.duration=5 steps", "--json"]
    assert main(words) == 0
    values = {one["path"]: one["value"] for one in json.loads(capsys.readouterr().out)["values"]}
    assert (values["training.duration"], values["schedule.warmup"]) == ("5 steps", "1 steps")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([LLAMA, "--scale-down", "gpu"], "--scale-down gpu: a recipe can be made small for cpu"),
        ([str(RECIPES), "--scale-down", "cpu"], "is a run already; give the recipe's file"),
        (
            [LLAMA, "--scale-down", "cpu", "--set", "training.global_batch_size=3"],
            "training.global_batch_size (3) is not a multiple of 2 copies",
        ),
    ],
)
def test_what_cannot_be_made_small_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture):
    assert main(["explain", *words]) == 2
    assert said in capsys.readouterr().err
