"""BERT-Large's two phases as they are shipped, over shards in the vendor's format, with a wee model: a kill
in each phase, and the same command again, end as the straight run does, to the bit."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from bert_case import RECIPES, kill_after, losses, results_of
from demo_case import run_kitae
from tiny_wordpiece import IDS, write_wordpiece
from transformers import AutoModelForPreTraining

STEPS, MORE = 12, 8
WEE = {
    "name": "straight",
    "model.preset": "bert-tiny",
    "model.shape": "{num_layers: 2, hidden_size: 32, intermediate_size: 64, num_heads: 2}",
    "training.duration": f"{STEPS} steps",
    "training.global_batch_size": "8",
    "training.micro_batch_size": "4",
    "schedule.warmup": "3 steps",
    "phases.1.training.duration": f"{MORE} steps",
    "phases.1.training.global_batch_size": "6",
    "phases.1.schedule.warmup": "2 steps",
    "parallel.data_parallel_size": "1",
    "checkpoint.every": "3 steps",
    "target": "{kind: local}",
}


def write_shard(path: Path, rows: int, length: int, predictions: int) -> None:
    """Rows of random pieces as the vendor's example stores them, a tenth of which is masked."""
    draw = np.random.default_rng(length)
    real = np.arange(length) < draw.integers(length // 2, length + 1, rows)[:, None]
    ids = np.where(real, draw.integers(5, len(IDS), (rows, length)), 0)
    second = np.arange(length) >= length // 4
    ids[:, 0], ids[:, length // 4 - 1] = IDS["[CLS]"], IDS["[SEP]"]
    ids[np.arange(rows), real.sum(1) - 1] = IDS["[SEP]"]
    positions = np.zeros((rows, predictions), np.int32)
    labels = np.zeros_like(positions)
    count = length // 10
    positions[:, :count] = np.arange(length // 4, length // 4 + count)
    labels[:, :count] = np.take_along_axis(ids, positions[:, :count], 1)
    np.put_along_axis(ids, positions[:, :count], IDS["[MASK]"], 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.create_dataset("input_ids", data=ids.astype("i4"), compression="gzip")
        file.create_dataset("input_mask", data=real.astype("i1"), compression="gzip")
        file.create_dataset("segment_ids", data=(real & second).astype("i1"), compression="gzip")
        file.create_dataset("masked_lm_positions", data=positions, compression="gzip")
        file.create_dataset("masked_lm_ids", data=labels, compression="gzip")
        file.create_dataset("next_sentence_labels", data=draw.integers(0, 2, rows).astype("i1"))


def settings(folder: Path, **changes: str) -> list[str]:
    """Flags that make the full-size recipe a wee one; lengths, rates, precision and phases stay."""
    places = {
        "data.tokenizer": f"{{folder: {folder / 'tokenizer'}}}",
        "data.train.0.path": str(folder / "shards128"),
        "phases.1.data.train.0.path": str(folder / "shards512"),
    }
    return [
        word for key, value in {**WEE, **places, **changes}.items() for word in ("--set", f"{key}={value}")
    ]


@pytest.fixture(scope="module", params=["", "lamb-"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Shards and a tokenizer, where kitae is started; and the recipe, for AdamW and for LAMB."""
    folder = tmp_path_factory.mktemp("phases")
    write_wordpiece(folder / "tokenizer")
    for length, predictions in ((128, 20), (512, 80)):
        for number in range(2):
            name = f"wiki_training_{number}.hdf5"
            write_shard(folder / f"shards{length}" / name, 40, length, predictions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KITAE_CACHE", str(folder / "cache"))
        patch.setenv("OMP_NUM_THREADS", "1")
        recipe = RECIPES / f"bert-large-pretrain-{request.param}trn1.yaml"
        done = run_kitae("run", recipe, *settings(folder), folder=folder)
        assert done.returncode == 0, done.stderr
        yield folder, recipe


def test_the_phases_follow_each_other(case: tuple[Path, Path]):
    folder, _ = case
    results = results_of(folder, "straight")
    assert results["steps"] == STEPS + MORE
    assert [(one["name"], one["steps"], one["sequence_length"]) for one in results["phases"]] == [
        ("seq128", STEPS, 128),
        ("seq512", MORE, 512),
    ]
    lines = (folder / "runs/straight/metrics.jsonl").read_text().splitlines()
    rates = [one["learning_rate"] for one in map(json.loads, lines) if one["kind"] == "train"]
    for own, phase in ((rates[:STEPS], results["phases"][0]), (rates[STEPS:], results["phases"][1])):
        assert max(own) == pytest.approx(phase["learning_rate"])
    assert len(losses(folder, "straight")) == STEPS + MORE


def test_a_kill_in_each_phase_changes_nothing(case: tuple[Path, Path]):
    folder, recipe = case
    words = ["run", str(recipe), *settings(folder, name="killed")]
    for step in (5, STEPS + 4):
        kill_after(words, step, folder=folder, name="killed")
    done = run_kitae(*words, folder=folder)
    assert done.returncode == 0, done.stderr
    assert losses(folder, "killed") == losses(folder, "straight")
    weights = [folder / "runs" / name / "export/model.safetensors" for name in ("straight", "killed")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_stock_transformers_loads_what_was_trained(case: tuple[Path, Path]):
    folder, _ = case
    model, info = AutoModelForPreTraining.from_pretrained(
        folder / "runs/straight/export", output_loading_info=True
    )
    assert type(model).__name__ == "BertForPreTraining"
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
