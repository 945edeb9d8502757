"""The demo: a real pretrained model and real text become a better model, proven, and a control does not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from demo_case import RECIPE, run_kitae
from transformers import AutoModelForCausalLM, AutoTokenizer

from kitae.checkpoint.model_folder import load_decoder
from kitae.stages.job import open_job
from kitae.stages.pipeline import run_stages

NAME = "smollm2-ja-demo"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished demo run, and where kitae was started; the model's package is installed."""
    folder = tmp_path_factory.mktemp("demo")
    done = run_kitae("run", RECIPE, folder=folder, offline=True)
    assert done.returncode == 0, done.stderr
    assert "held-out loss" in done.stdout
    assert "dequantised from Q4_1" in done.stdout
    return folder


def results_of(folder: Path) -> dict:
    return json.loads((folder / "runs" / NAME / "results.json").read_text())


def test_the_heldout_loss_falls_by_at_least_0_15_nats(demo: Path):
    heldout = results_of(demo)["heldout"]
    assert heldout["loss_before"] - heldout["loss_after"] >= 0.15
    assert heldout["mean_drop"] > 3 * heldout["standard_error"]
    assert heldout["rows_improved"] > 0.8 * heldout["rows"]


def test_stock_transformers_loads_the_export_and_gives_the_same_logits(demo: Path):
    """Within 1e-4 in fp32; longer prompts come near that by rounding alone, so the proof judges those."""
    export = demo / "runs" / NAME / "export"
    model = AutoModelForCausalLM.from_pretrained(export, dtype=torch.float32, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(export, local_files_only=True)
    decoder = load_decoder(export)
    ids = torch.tensor([tokenizer("Gravity is")["input_ids"]])
    with torch.no_grad():
        theirs = model(ids).logits
        ours = decoder.logits(decoder(ids, torch.arange(ids.shape[1])[None]))
    assert (ours - theirs).abs().max().item() <= 1e-4
    proof = json.loads((demo / "runs" / NAME / "proof.json").read_text())
    pairs = zip(proof["differences"], proof["rounding"], strict=True)
    assert all(difference <= 1e-4 + 2 * rounding for difference, rounding in pairs)


def test_a_second_run_skips_every_stage(demo: Path):
    done = run_kitae("run", RECIPE, folder=demo)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("skipped, its result is there") == 6
    assert f"{results_of(demo)['heldout']['loss_after']:.3f} after" in done.stdout


def test_the_same_steps_on_shuffled_tokens_make_it_worse(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The control: what helps is the text, not the mere taking of steps."""
    monkeypatch.chdir(tmp_path)
    job = open_job(RECIPE, ["name=shuffled"], report=lambda line: None)
    run_stages(job, "import")
    job = open_job(RECIPE, ["name=shuffled"], report=lambda line: None)
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    _copy_cache_with_shuffled_tokens(job.cache, tmp_path / "cache", job.data_key)
    shuffled = open_job(RECIPE, ["name=shuffled", "sample=null"], report=lambda line: None)
    run_stages(shuffled, "train")
    heldout = json.loads((tmp_path / "runs/shuffled/results.json").read_text())["heldout"]
    real = results_of(demo)["heldout"]
    assert heldout["loss_before"] == pytest.approx(real["loss_before"], abs=1e-6)
    assert heldout["loss_after"] > heldout["loss_before"]


def _copy_cache_with_shuffled_tokens(source: Path, target: Path, data_key: str) -> None:
    """A cache of links to `source`, but for the packed data, whose training tokens are permuted."""
    target.mkdir()
    for entry in source.iterdir():
        if entry.name != "data":
            (target / entry.name).symlink_to(entry)
    packed = target / "data" / data_key
    for file in (source / "data" / data_key).rglob("*"):
        if file.is_file():
            copy = packed / file.relative_to(source / "data" / data_key)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    shards = sorted((packed / "train").glob("tokens-*.bin"))
    tokens = np.concatenate([np.fromfile(shard, dtype="<u2") for shard in shards])
    assert len(shards) == 1
    np.random.default_rng(0).permutation(tokens).tofile(shards[0])
