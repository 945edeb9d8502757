"""A recipe through all stages, again, changed, broken, and by the folder of its run."""

from __future__ import annotations

import json
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from job_case import kitae, write_recipe
from transformers import AutoModelForCausalLM, AutoTokenizer

from kitae.stages import importing
from kitae.stages.job import open_job
from kitae.stages.run_folder import RunFolder
from kitae.storage.lock import exclusive


def stages_done(output: str) -> list[str]:
    """Names of the stages that were not skipped."""
    names = ("plan", "prepare", "import", "train", "export", "prove")
    return [name for name in names if f"{name}: skipped" not in output]


def damage(checkpoint: Path) -> None:
    """Turn one bit of the weights."""
    weights = next(checkpoint.glob("weights-*"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)


def test_a_recipe_becomes_a_better_model_that_transformers_loads(case: Path, capsys: pytest.CaptureFixture):
    assert kitae("run", "recipe.yaml") == 0
    results = json.loads((case / "runs/tiny/results.json").read_text())
    assert results["heldout"]["loss_after"] < results["heldout"]["loss_before"]
    model = AutoModelForCausalLM.from_pretrained(case / "runs/tiny/export", local_files_only=True)
    assert model.dtype == torch.bfloat16
    assert model.config.tie_word_embeddings
    assert AutoTokenizer.from_pretrained(case / "runs/tiny/export")("kitae")["input_ids"]
    proof = json.loads((case / "runs/tiny/proof.json").read_text())
    assert proof["max_difference"] <= proof["limit"] == 1e-4
    samples = json.loads((case / "runs/tiny/samples.json").read_text())
    assert samples["before"].startswith("kitae")
    assert samples["after"] != samples["before"]
    output = capsys.readouterr().out
    assert f"{results['heldout']['loss_after']:.3f} after" in output
    assert str(case / "runs/tiny/export") in output


def test_a_second_run_skips_every_stage_and_says_the_same_result(case: Path, capsys: pytest.CaptureFixture):
    kitae("run", "recipe.yaml")
    first = capsys.readouterr().out
    before = (case / "runs/tiny/metrics.jsonl").read_bytes()
    assert kitae("run", "recipe.yaml") == 0
    output = capsys.readouterr().out
    assert stages_done(output) == []
    assert output.splitlines()[-7:] == first.splitlines()[-7:]
    assert "held-out loss" in output.splitlines()[-7]
    assert output.splitlines()[-1] == f"report         {case / 'runs/tiny/report.html'}"
    assert (case / "runs/tiny/metrics.jsonl").read_bytes() == before


def test_stages_share_text_and_weights_between_runs(case: Path, capsys: pytest.CaptureFixture):
    kitae("run", "recipe.yaml")
    capsys.readouterr()
    assert kitae("run", "recipe.yaml", "--set", "name=other") == 0
    output = capsys.readouterr().out
    assert "prepare: found in" in output
    assert "import: found in" in output
    same = [json.loads((case / "runs" / name / "results.json").read_text()) for name in ("tiny", "other")]
    assert same[0]["heldout"] == same[1]["heldout"]
    assert same[0]["train_loss_last"] == same[1]["train_loss_last"]


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ("proof.max_logit_difference=0.001", ["prove"]),
        ("export.dtype=fp32", ["export", "prove"]),
        ("sample.max_new_tokens=6", []),
    ],
)
def test_only_what_a_change_touches_is_done_again(
    case: Path, capsys: pytest.CaptureFixture, change: str, again: list[str]
):
    kitae("run", "recipe.yaml")
    capsys.readouterr()
    assert kitae("run", "recipe.yaml", "--set", change) == 0
    assert stages_done(capsys.readouterr().out) == again


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("optimizer.learning_rate=0.02", "optimizer.learning_rate: 0.01 is now 0.02"),
        ("training.duration=7 steps", "training.duration: 6 steps is now 7 steps"),
        ("data.sequence_length=16", "data.sequence_length: 32 is now 16"),
        ("evaluation.max_rows=1", "evaluation.max_rows: None is now 1"),
        ("model={preset: llama-tiny}", "model.preset: None is now llama-tiny"),
    ],
)
def test_another_training_under_the_same_name_is_refused_and_nothing_is_lost(
    case: Path, capsys: pytest.CaptureFixture, change: str, message: str
):
    tokenizer = ["--set", "data.tokenizer.folder=model"]
    kitae("run", "recipe.yaml", *tokenizer)
    capsys.readouterr()
    files = [case / "runs/tiny" / name for name in ("results.json", "plan.json", "recipe.yaml", "proof.json")]
    before, state = [file.read_bytes() for file in files], RunFolder(case / "runs/tiny").state
    assert kitae("run", "recipe.yaml", *tokenizer, "--set", change) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "--start-over" in error
    assert [file.read_bytes() for file in files] == before
    assert RunFolder(case / "runs/tiny").state == state  # a finished run does not become a failed one


def test_a_run_that_an_older_kitae_began_is_not_blamed_on_settings(case: Path, capsys: pytest.CaptureFixture):
    """Its key and settings held what does not change what is learned; nobody could put those back."""
    kitae("run", "recipe.yaml")
    run = RunFolder(case / "runs/tiny")
    run.state["settings"]["training"].update(micro_batch_size=1, recompute="full")
    run.state["train_key"] = "as it was made then"
    run.write()
    capsys.readouterr()
    assert kitae("run", "recipe.yaml") == 2
    error = capsys.readouterr().err
    assert "micro_batch_size" not in error
    assert "or an older kitae began it" in error


def test_start_over_keeps_the_old_run_aside(case: Path, capsys: pytest.CaptureFixture):
    kitae("run", "recipe.yaml")
    assert kitae("run", "recipe.yaml", "--set", "optimizer.learning_rate=0.02", "--start-over") == 0
    assert (case / "runs/tiny.old-1/results.json").is_file()
    assert RunFolder(case / "runs/tiny").attempts == 1


def test_start_over_does_not_move_a_run_that_is_worked_in(case: Path, capsys: pytest.CaptureFixture):
    with RunFolder(case / "runs/tiny").attempt():
        assert kitae("run", "recipe.yaml", "--start-over") == 1
    assert "another kitae process works in" in capsys.readouterr().err
    assert not (case / "runs/tiny.old-1").exists()


def test_a_run_is_known_by_its_folder_from_anywhere(
    case: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    kitae("run", "recipe.yaml")
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert kitae("run", case / "runs/tiny") == 0
    assert stages_done(capsys.readouterr().out) == []


def test_weights_of_a_run_start_another_at_step_0(case: Path, capsys: pytest.CaptureFixture):
    """Row 45 of the field's cases: weights only, steps, optimizer and data begin anew."""
    kitae("run", "recipe.yaml")
    before = json.loads((case / "runs/tiny/results.json").read_text())
    write_recipe(case, name="second", model={"run": "runs/tiny"})
    assert kitae("run", "recipe.yaml") == 0
    after = json.loads((case / "runs/second/results.json").read_text())
    assert after["heldout"]["loss_before"] == pytest.approx(before["heldout"]["loss_after"], abs=1e-6)
    first = json.loads((case / "runs/second/metrics.jsonl").read_text().splitlines()[0])
    assert first["step"] == 0


def test_no_older_checkpoint_is_imported_in_the_place_of_a_damaged_one(
    case: Path, capsys: pytest.CaptureFixture
):
    kitae("train", "recipe.yaml", "--set", "checkpoint.every=2 steps")
    damage(case / "runs/tiny/checkpoints/step-00000006")
    write_recipe(case, name="second", model={"run": "runs/tiny"})
    capsys.readouterr()
    assert kitae("train", "recipe.yaml") == 4
    assert "step-00000006" in capsys.readouterr().err
    assert kitae("train", "recipe.yaml", "--set", "model.run=runs/tiny/checkpoints/step-00000004") == 0


def test_weights_that_another_process_imports_at_the_same_time_are_written_once(case: Path):
    job = open_job(case / "recipe.yaml")
    key = importing.import_key(job)
    lock = job.imported(key).with_name(f".{key}.lock")
    with ThreadPoolExecutor(1) as other:
        with exclusive(lock):
            late = other.submit(importing.import_weights, job, key)
            importing._import(job, key, job.imported(key))
            written = (job.imported(key) / "step-00000000").stat().st_ino
        assert late.result()["reused"]
    assert (job.imported(key) / "step-00000000").stat().st_ino == written


def test_an_end_token_that_only_the_config_names_goes_on_ending_documents(case: Path):
    (case / "model/tokenizer_config.json").unlink()
    kitae("train", "recipe.yaml")
    write_recipe(case, name="second", model={"run": "runs/tiny"})
    kitae("train", "recipe.yaml")
    keys = [json.loads((case / "runs" / name / "results.json").read_text()) for name in ("tiny", "second")]
    assert keys[0]["data_key"] == keys[1]["data_key"]


def test_the_tokenizer_of_an_attempt_that_saved_nothing_is_not_exported(
    case: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copytree(case / "model", case / "other")
    (case / "other/added_tokens.json").write_text("{}")
    settings = json.loads((case / "other/tokenizer_config.json").read_text())
    (case / "other/tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": 77}))
    with monkeypatch.context() as patch:
        patch.setattr("kitae.train.loop.train", lambda job: 1 / 0)
        assert kitae("train", "recipe.yaml", "--set", "model.folder=other") == 70
    assert kitae("run", "recipe.yaml") == 0
    exported = json.loads((case / "runs/tiny/export/tokenizer_config.json").read_text())
    assert exported == json.loads((case / "model/tokenizer_config.json").read_text())
    assert not (case / "runs/tiny/export/added_tokens.json").exists()


def test_a_new_model_from_a_preset(case: Path, capsys: pytest.CaptureFixture):
    data = {
        "train": [{"path": "text/train.txt", "document": "paragraph"}],
        "heldout": {"fraction": 0.2},
        "tokenizer": {"folder": "model"},
        "sequence_length": 32,
        "workers": 0,
    }
    write_recipe(case, model={"preset": "llama-tiny"}, data=data)
    assert kitae("run", "recipe.yaml") == 0
    config = json.loads((case / "runs/tiny/export/config.json").read_text())
    assert config["vocab_size"] == len(AutoTokenizer.from_pretrained(case / "model"))
    model = AutoModelForCausalLM.from_pretrained(case / "runs/tiny/export", local_files_only=True)
    assert model.dtype == torch.float32


def test_no_network_is_used_for_a_model_folder(case: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert kitae("run", "recipe.yaml") == 0


def test_two_processes_do_not_work_in_one_run(case: Path, capsys: pytest.CaptureFixture):
    with RunFolder(case / "runs/tiny").attempt():
        assert kitae("run", "recipe.yaml") == 1
    assert "another kitae process works in" in capsys.readouterr().err


def test_a_killed_attempt_is_recorded_as_such(case: Path):
    folder = RunFolder(case / "runs/tiny")
    folder.state["attempts"].append({"started": "", "pid": 1, "ended": None, "outcome": "running"})
    case.joinpath("runs/tiny").mkdir(parents=True)
    folder.write()
    with RunFolder(case / "runs/tiny").attempt():
        pass
    assert [one["outcome"] for one in RunFolder(case / "runs/tiny").state["attempts"]] == [
        "killed",
        "finished",
    ]


def test_nothing_is_written_for_an_unsupported_model(case: Path, capsys: pytest.CaptureFixture):
    """T08: the kind of rope scaling is named, and neither run nor cache holds anything of it."""
    config = json.loads((case / "model/config.json").read_text())
    config.pop("rope_parameters", None)
    config["rope_scaling"] = {"rope_type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}
    (case / "model/config.json").write_text(json.dumps(config))
    assert kitae("run", "recipe.yaml") == 4
    error = capsys.readouterr().err
    assert "longrope" in error
    assert "Traceback" not in error
    assert not (case / "runs/tiny/plan.json").exists()
    assert not list((case.parent / "cache").glob("imported/*"))


def test_a_missing_text_is_named(case: Path, capsys: pytest.CaptureFixture):
    shutil.rmtree(case / "text")
    assert kitae("run", "recipe.yaml") == 3
    assert "text/train.txt" in capsys.readouterr().err


def test_a_damaged_last_checkpoint_is_never_passed_off_as_the_trained_one(
    case: Path, capsys: pytest.CaptureFixture
):
    saves = ["--set", "checkpoint.every=2 steps"]
    assert kitae("run", "recipe.yaml", *saves) == 0
    trained = (case / "runs/tiny/export/model.safetensors").read_bytes()
    damage(case / "runs/tiny/checkpoints/step-00000006")
    capsys.readouterr()
    assert kitae("run", "recipe.yaml", *saves, "--set", "export.dtype=fp32") == 4
    assert "the newest usable one is of step 4: run the same command again" in capsys.readouterr().err
    assert kitae("run", "recipe.yaml", *saves) == 0
    assert (case / "runs/tiny/export/model.safetensors").read_bytes() == trained


def test_an_export_that_was_touched_is_proven_again(case: Path, capsys: pytest.CaptureFixture):
    kitae("run", "recipe.yaml")
    config = case / "runs/tiny/export/config.json"
    config.write_text(config.read_text() + "\n")
    capsys.readouterr()
    assert kitae("run", "recipe.yaml") == 0
    assert stages_done(capsys.readouterr().out) == ["prove"]


def test_weights_that_changed_since_the_export_are_not_proven(case: Path, capsys: pytest.CaptureFixture):
    """Both readers would agree on them."""
    kitae("run", "recipe.yaml")
    weights = case / "runs/tiny/export/model.safetensors"
    exported = weights.read_bytes()
    weights.write_bytes(exported[:-1] + bytes([exported[-1] ^ 1]))
    capsys.readouterr()
    assert kitae("run", "recipe.yaml") == 6
    assert "model.safetensors changed since the export" in capsys.readouterr().err
    shutil.rmtree(weights.parent)
    assert kitae("run", "recipe.yaml") == 0
    assert weights.read_bytes() == exported


def test_a_lost_last_checkpoint_is_trained_again(case: Path, capsys: pytest.CaptureFixture):
    saves = ["--set", "checkpoint.every=2 steps"]
    kitae("run", "recipe.yaml", *saves)
    shutil.rmtree(case / "runs/tiny/checkpoints/step-00000006")
    capsys.readouterr()
    assert kitae("run", "recipe.yaml", *saves) == 0
    assert stages_done(capsys.readouterr().out) == ["train"]
    assert (case / "runs/tiny/checkpoints/step-00000006/manifest.json").is_file()


def test_a_run_cannot_be_renamed_by_a_flag(case: Path, capsys: pytest.CaptureFixture):
    kitae("plan", "recipe.yaml")
    assert kitae("run", case / "runs/tiny", "--set", "name=other") == 2
    assert "is a run already" in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_named(case: Path, capsys: pytest.CaptureFixture):
    assert kitae("run", case / "text") == 2
    assert "neither a recipe nor a run" in capsys.readouterr().err


def test_a_run_folder_that_cannot_be_made_says_what_to_set(case: Path, capsys: pytest.CaptureFixture):
    assert kitae("run", "recipe.yaml", "--set", "runs=recipe.yaml") == 7
    assert "Not a directory; set runs to a folder that can be written to" in capsys.readouterr().err
