"""The verbs beside `run`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from job_case import kitae
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM


@pytest.fixture
def run(case: Path, capsys: pytest.CaptureFixture) -> Path:
    """A finished run."""
    assert kitae("run", "recipe.yaml") == 0
    capsys.readouterr()
    return case / "runs/tiny"


def test_train_stops_before_the_export(case: Path):
    assert kitae("train", "recipe.yaml") == 0
    assert (case / "runs/tiny/results.json").is_file()
    assert not (case / "runs/tiny/export").exists()


def test_torchrun_is_not_needed(case: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert kitae("train", "recipe.yaml") == 2
    assert "torchrun started this 2 times, but kitae starts its processes itself" in capsys.readouterr().err
    assert not (case / "runs").exists()
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert kitae("plan", "recipe.yaml") == 0


def test_plan_says_the_exact_bytes(case: Path, capsys: pytest.CaptureFixture):
    assert kitae("plan", "recipe.yaml") == 0
    plan = json.loads((case / "runs/tiny/plan.json").read_text())
    # Embedding 320 x 32; in two layers: q and o 32 x 32, k and v 16 x 32, three 32 x 64, two norms.
    parameters = 320 * 32 + 2 * (32 * 32 * 3 + 3 * 32 * 64 + 2 * 32) + 32
    assert plan["parameters"] == parameters
    assert plan["bytes"] == {
        "parameters": 4 * parameters,
        "gradients": 4 * parameters,
        "optimizer": 8 * parameters,
    }
    assert f"{parameters:,} parameters in fp32" in capsys.readouterr().out


def test_eval_gives_the_loss_of_the_results(run: Path, capsys: pytest.CaptureFixture):
    assert kitae("eval", "recipe.yaml", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["loss"] == json.loads((run / "results.json").read_text())["heldout"]["loss_after"]


def test_eval_of_a_folder_reads_that_folder(run: Path, capsys: pytest.CaptureFixture):
    assert kitae("eval", "recipe.yaml", "--json", "--model", "model") == 0
    found = json.loads(capsys.readouterr().out)
    before = json.loads((run / "results.json").read_text())["heldout"]["loss_before"]
    assert found["loss"] == pytest.approx(before, abs=1e-6)


def test_eval_in_int8_judges_the_same_rows_and_says_what_it_costs(run: Path, capsys: pytest.CaptureFixture):
    assert kitae("eval", "recipe.yaml", "--json") == 0
    own = json.loads(capsys.readouterr().out)
    assert kitae("eval", run, "--quantize", "int8", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["unquantised"]["tokens"] == found["tokens"] == own["tokens"]
    assert found["unquantised"]["loss"] == pytest.approx(own["loss"], abs=1e-5)
    assert found["loss"] == pytest.approx(own["loss"], abs=0.02)
    assert kitae("eval", "recipe.yaml", "--quantize", "int8") == 0
    assert "int8 costs" in capsys.readouterr().out


def test_eval_of_a_model_with_fewer_ids_names_the_token(
    case: Path, capsys: pytest.CaptureFixture, tmp_path: Path
):
    config = LlamaConfig.from_pretrained(case / "model", vocab_size=100)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "small")
    assert kitae("eval", "recipe.yaml", "--model", tmp_path / "small") == 3
    assert "the embedding has 100 rows" in capsys.readouterr().err


def test_export_to_another_folder(run: Path, tmp_path: Path):
    assert kitae("export", "recipe.yaml", "--to", tmp_path / "out") == 0
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out", local_files_only=True)


def test_export_knows_the_models_origin_without_the_cache(case: Path, tmp_path: Path):
    generation = {"do_sample": True, "eos_token_id": 1, "temperature": 0.5}
    (case / "model/generation_config.json").write_text(json.dumps(generation))
    kitae("train", "recipe.yaml")
    shutil.rmtree(tmp_path / "cache")
    assert kitae("export", "runs/tiny", "--to", tmp_path / "out") == 0
    assert (
        AutoModelForCausalLM.from_pretrained(tmp_path / "out", local_files_only=True).dtype == torch.bfloat16
    )
    assert json.loads((tmp_path / "out/generation_config.json").read_text()) == generation


def test_export_before_training_says_what_to_do(case: Path, capsys: pytest.CaptureFixture, tmp_path: Path):
    assert kitae("export", "recipe.yaml", "--to", tmp_path / "out") == 2
    assert "train it first" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["", "export", "checkpoints/step-00000006"])
def test_generate_from_run_export_and_checkpoint(run: Path, capsys: pytest.CaptureFixture, place: str):
    assert kitae("generate", run / place, "--prompt", "kitae", "--max-new-tokens", "4") == 0
    assert capsys.readouterr().out.startswith("kitae")


def test_generate_from_a_folder_without_a_model(case: Path, capsys: pytest.CaptureFixture):
    assert kitae("generate", case / "text", "--prompt", "x") == 4
    assert "holds no weights that kitae knows" in capsys.readouterr().err


def test_inspect_shows_rows_and_card(case: Path, capsys: pytest.CaptureFixture):
    assert kitae("inspect", "recipe.yaml", "--rows", "0,1", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["row"] for row in shown["rows"]] == [0, 1]
    assert len(shown["rows"][0]["ids"]) == 32
    assert shown["card"]["splits"]["train"]["documents"] == 80


def test_inspect_of_a_row_that_is_not_there(case: Path, capsys: pytest.CaptureFixture):
    assert kitae("inspect", "recipe.yaml", "--rows", "100000") == 3
    assert "there are rows 0 to" in capsys.readouterr().err


def test_inspect_of_rows_that_are_no_numbers(case: Path, capsys: pytest.CaptureFixture):
    assert kitae("inspect", "recipe.yaml", "--rows", "first") == 2
    assert "write it as 0,5,7" in capsys.readouterr().err
