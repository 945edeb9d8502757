"""A small BERT from scratch fills gaps better than a guess by how common each piece is."""

from __future__ import annotations

from pathlib import Path

import pytest
from bert_case import RECIPES, build_japanese, kill_after, losses, results_of
from demo_case import run_kitae
from transformers import pipeline

NAME = "bert-mlm-cpu"
RECIPE = RECIPES / f"{NAME}.yaml"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kitae was started: a run that was killed once, and then taken to its end by the same command."""
    build_japanese()
    folder = tmp_path_factory.mktemp("mlm")
    words = ["run", str(RECIPE), "--set", "checkpoint.every=100 steps"]
    kill_after(words, 150, folder=folder, name=NAME)
    before = losses(folder, NAME)
    done = run_kitae(*words, folder=folder, offline=True)
    assert done.returncode == 0, done.stderr
    assert losses(folder, NAME)[: len(before)] == before
    (folder / "output.txt").write_text(done.stdout)
    return folder


def test_it_beats_the_guess_that_is_printed_beside_it(case: Path):
    heldout = results_of(case, NAME)["heldout"]
    assert heldout["loss_after"] < heldout["unigram_loss"] - 0.5
    assert heldout["loss_before"] > heldout["unigram_loss"]
    assert (
        f"a guess by frequency alone has {heldout['unigram_loss']:.3f}" in (case / "output.txt").read_text()
    )


def test_stock_transformers_fills_a_gap(case: Path):
    fill = pipeline("fill-mask", model=str(case / "runs" / NAME / "export"))
    best = fill("彼は毎日学校に[MASK]。")
    assert len(best) == 5
    assert all(0 < answer["score"] < 1 for answer in best)
