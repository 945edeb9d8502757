"""The Japanese classifier: a pretrained encoder learns weak labels (by translation) in about two minutes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bert_case import RECIPES, build_japanese, kill_after, losses, results_of
from demo_case import run_kitae
from transformers import pipeline

NAME = "ja-sentiment-cpu"
RECIPE = RECIPES / f"{NAME}.yaml"
KILLED_AFTER = 30
TEXTS = {
    "とても素晴らしい一日で、本当に幸せです。": "positive",
    "ひどい事故で、彼は悲しみに沈んだ。": "negative",
}


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kitae was started: a run that was killed once, and then taken to its end by the same command."""
    build_japanese()
    folder = tmp_path_factory.mktemp("sentiment")
    words = ["run", str(RECIPE), "--set", "checkpoint.every=20 steps"]
    kill_after(words, KILLED_AFTER, folder=folder, name=NAME)
    before = losses(folder, NAME)
    done = run_kitae(*words, folder=folder, offline=True)
    assert done.returncode == 0, done.stderr
    assert "checkpoints/step-00000020 after step 20" in done.stdout
    # The updates since the last save are made again, to the bit.
    assert losses(folder, NAME)[: len(before)] == before
    return folder


def test_it_learns_what_the_labels_say(case: Path):
    heldout = results_of(case, NAME)["heldout"]
    assert heldout["texts"] == 800
    assert 0.4 < heldout["accuracy_before"] < 0.6
    assert heldout["accuracy_after"] >= 0.85
    assert min(heldout["f1_after"]) >= 0.8
    assert sum(map(sum, heldout["confusion_matrix_after"])) == 800


def test_stock_transformers_names_the_labels(case: Path):
    classify = pipeline("text-classification", model=str(case / "runs" / NAME / "export"))
    answers = classify(list(TEXTS))
    assert [answer["label"] for answer in answers] == list(TEXTS.values())
    assert min(answer["score"] for answer in answers) > 0.7


def test_kitae_says_the_same(case: Path):
    words = [word for text in TEXTS for word in ("--text", text)]
    done = run_kitae("classify", f"runs/{NAME}", "--json", *words, folder=case, offline=True)
    assert done.returncode == 0, done.stderr
    ours = [json.loads(line) for line in done.stdout.splitlines()]
    theirs = pipeline("text-classification", model=str(case / "runs" / NAME / "export"))(list(TEXTS))
    assert [one["label"] for one in ours] == [one["label"] for one in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one["score"] == pytest.approx(other["score"], abs=1e-4)


def test_two_processes_learn_the_same(case: Path):
    """Half of each batch in either; with the same global batch the losses are those of one process."""
    words = ("--set", f"name={NAME}-2", "--set", "parallel.data_parallel_size=2")
    # Processes talk to each other over the loopback, which a network of its own has not.
    done = run_kitae("run", RECIPE, *words, folder=case)
    assert done.returncode == 0, done.stderr
    two, one = losses(case, f"{NAME}-2"), losses(case, NAME)
    assert len(two) == len(one)
    assert two[:10] == pytest.approx(one[:10], abs=1e-4)
    assert results_of(case, f"{NAME}-2")["heldout"]["accuracy_after"] >= 0.85
