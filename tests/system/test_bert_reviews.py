"""The classifier of Japanese reviews as shipped, with a wee model and few reviews: on one copy and on two."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from bert_case import RECIPES, losses, results_of
from demo_case import run_kitae
from japanese_case import write_japanese
from tiny_encoders import SIZES
from transformers import BertConfig, BertForMaskedLM, pipeline

RECIPE = RECIPES / "bert-ja-trn1-2xlarge.yaml"
GOOD, BAD = "使いやすいです。迅速、丁寧な対応でした。", "すぐに壊れた。二度と買わない。"
TRAIN, EPOCHS = 64, 8


def write_reviews(path: Path, count: int) -> None:
    """One to five stars in turn; what is between says nothing."""
    path.parent.mkdir(exist_ok=True)
    rows = [
        {"stars": 1 + n % 5, "review_body": f"{n}番目。{(BAD, BAD, '普通。', GOOD, GOOD)[n % 5]}"}
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reviews, and a model for masked words as the Hub has it: its tokenizer names no dictionary."""
    folder = tmp_path_factory.mktemp("reviews")
    write_reviews(folder / "train.jsonl", 120)
    write_reviews(folder / "test.jsonl", 30)
    sizes = {**SIZES, "vocab_size": 3072, "max_position_embeddings": 128}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertForMaskedLM(BertConfig(**sizes)).save_pretrained(folder / "model")
    write_japanese(folder / "model", mecab_kwargs=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KITAE_CACHE", str(folder / "cache"))
        patch.setenv("OMP_NUM_THREADS", "1")
        for copies in (1, 2):
            done = run_kitae("run", RECIPE, *settings(folder, copies), folder=folder)
            assert done.returncode == 0, done.stderr
        yield folder


def settings(folder: Path, copies: int) -> list[str]:
    """Rules for labels, length, precision, dictionary and rows a device stay as they are shipped."""
    changes = {
        "name": f"on-{copies}",
        "model": f"{{folder: {folder / 'model'}}}",
        "data.tokenizer.hub": "null",
        "data.tokenizer.folder": str(folder / "model"),
        "data.train.0.path": str(folder / "train.jsonl"),
        "data.heldout.sources.0.path": str(folder / "test.jsonl"),
        "data.labels.sample": str(TRAIN),
        "data.labels.sample_heldout": "16",
        "optimizer.learning_rate": "3e-3",
        "training.duration": f"{EPOCHS} epochs",
        "parallel.data_parallel_size": str(copies),
        "target.backend": "cpu",
    }
    return [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]


def test_two_copies_make_half_as_many_updates(case: Path):
    for copies in (1, 2):
        results = results_of(case, f"on-{copies}")
        assert results["global_batch_size"] == 8 * copies
        assert len(losses(case, f"on-{copies}")) == TRAIN * EPOCHS // (8 * copies)
        assert results["heldout"]["texts"] == 16
        assert results["heldout"]["accuracy_after"] == 1.0


def test_the_export_names_labels_and_dictionary(case: Path):
    export = case / "runs/on-2/export"
    settings = json.loads((export / "tokenizer_config.json").read_text())
    assert settings["mecab_kwargs"]["mecab_dic"] == "ipadic"
    answers = pipeline("text-classification", model=str(export))([f"77番目。{GOOD}", f"77番目。{BAD}"])
    assert [answer["label"] for answer in answers] == ["positive", "negative"]
