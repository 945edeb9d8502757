"""The three procedures' recipes with `--scale-down cpu`, run to their end as a person runs them, offline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bert_case import RECIPES, losses, results_of
from demo_case import run_kitae
from transformers import AutoModelForCausalLM, AutoModelForPreTraining, pipeline

SMALL = ("--scale-down", "cpu")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path_factory.getbasetemp() / "small-cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def small_run(recipe: str, *flags: str, folder: Path) -> Path:
    """Take a recipe through all stages; the folder of its run."""
    words = [word for flag in flags for word in ("--set", flag)]
    done = run_kitae("run", RECIPES / f"{recipe}.yaml", *SMALL, *words, folder=folder)
    assert done.returncode == 0, done.stderr
    assert "scaled down to cpu: " in done.stdout
    name = next((flag.removeprefix("name=") for flag in flags if flag.startswith("name=")), f"{recipe}-small")
    run = folder / "runs" / name
    assert json.loads((run / "scaled-down.json").read_text())["changes"]
    assert json.loads((run / "proof.json").read_text())
    return run


def test_procedure_a_goes_through_both_phases(tmp_path: Path):
    """Two phases over shards, two copies, bf16 with stochastic rounding; a checkpoint in each."""
    run = small_run("bert-large-pretrain-trn1", folder=tmp_path)
    results = results_of(tmp_path, run.name)
    assert [(one["name"], one["steps"], one["sequence_length"]) for one in results["phases"]] == [
        ("seq128", 12, 32),
        ("seq512", 12, 128),
    ]
    assert len(losses(tmp_path, run.name)) == 24
    model, info = AutoModelForPreTraining.from_pretrained(run / "export", output_loading_info=True)
    assert not info["missing_keys"]
    assert model.config.num_hidden_layers == 2


def test_procedure_b_goes_from_ranks_files_to_a_text(tmp_path: Path):
    """Four ranks, two for a key-value head; NxD's files (xser) out and in; text of the exported folder."""
    run = small_run("llama3.1-8b-cpt-trn1", "parallel.data_parallel_size=1", folder=tmp_path)
    seen = losses(tmp_path, run.name)
    assert len(seen) == 12
    assert seen[-1] < seen[0]
    ranks = ("--to", "nxd", "--tp", "4", "--kv-multiplier", "2")
    out = tmp_path / "nxd/pretrained_weight"
    done = run_kitae("convert", run / "export", out, *ranks, "--xser", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(list((out / "model").glob("dp_rank_00_tp_rank_*_pp_rank_00.pt"))) == 4
    back = tmp_path / "back"
    done = run_kitae("convert", out, back, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    model = AutoModelForCausalLM.from_pretrained(back)
    exported = AutoModelForCausalLM.from_pretrained(run / "export")
    pairs = zip(model.state_dict().values(), exported.state_dict().values(), strict=True)
    assert all(one.equal(other) for one, other in pairs)
    # What NxD trained is where kitae goes on.
    again = small_run(
        "llama3.1-8b-cpt-trn1",
        "name=again",
        f"model={{folder: {back}}}",
        "parallel.data_parallel_size=1",
        "training.duration=2 steps",
        folder=tmp_path,
    )
    assert losses(tmp_path, again.name)[0] < seen[0]
    words = (
        "--prompt",
        "I had been",
        "--max-new-tokens",
        "8",
        "--top-k",
        "50",
        "--quantize",
        "int8",
        "--json",
    )
    done = run_kitae("generate", run / "export", *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tokens"] >= 1


@pytest.mark.parametrize(("copies", "precision"), [(1, "fp32"), (2, "fp32"), (1, "bf16-sr"), (2, "bf16-sr")])
def test_procedure_c_learns_to_tell_reviews(copies: int, precision: str, tmp_path: Path):
    """10 epochs of 256 reviews, 8 a copy: half as many updates on two, and as good in either precision."""
    pytest.importorskip("fugashi")
    flags = (f"parallel.data_parallel_size={copies}", f"training.precision={precision}")
    run = small_run("bert-ja-trn1-2xlarge", *flags, folder=tmp_path)
    assert len(losses(tmp_path, run.name)) == 10 * 256 // (8 * copies)
    assert results_of(tmp_path, run.name)["heldout"]["accuracy_after"] > 0.95
    classify = pipeline("text-classification", model=str(run / "export"))
    answers = classify(["この鍋はとても使いやすいです。", "この本はすぐに壊れました。"])
    assert [one["label"] for one in answers] == ["positive", "negative"]
