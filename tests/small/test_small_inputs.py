"""The small world: the same bytes each time, and files that kitae and transformers read."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from kitae.catalog import preset
from kitae.recipe.scale_shape import small_config
from kitae.recipe.small_inputs import Pieces, Prose, Reviews, Shards, SmallModel, folder_name
from kitae.small.make import make, place
from kitae.small.reviews import rows
from kitae.small.text import paragraphs

REVIEWS = Reviews("japanese", "body", "stars", None, (("1", "2"), ("4", "5")), ("3",))


def model_of(name: str, kind: str, dtype: str) -> SmallModel:
    text = json.dumps(small_config(preset(name).config, 32, 4), sort_keys=True)
    return SmallModel(text, dtype, Pieces(kind, "ipadic" if kind == "mecab" else None))


INPUTS = (
    Prose("english"),
    Prose("japanese"),
    REVIEWS,
    Shards(32, 5, Pieces("wordpiece")),
    model_of("llama3.1-8b", "bpe", "bf16"),
    model_of("bert-base-ja", "mecab", "fp32"),
)


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    for one in INPUTS:
        make(folder, one)
    return folder


def test_another_process_makes_the_same_bytes(cache: Path, tmp_path: Path):
    program = (
        "import sys; from pathlib import Path; sys.path[:0] = [sys.argv[2]];"
        "import test_small_inputs as t; [t.make(Path(sys.argv[1]), one) for one in t.INPUTS]"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path, Path(__file__).parent], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for one in INPUTS:
        assert hashes(place(tmp_path, one)) == hashes(place(cache, one)), one


def test_it_is_made_once(cache: Path):
    folder = place(cache, INPUTS[0])
    before = folder.stat().st_mtime_ns
    assert make(cache, INPUTS[0]) == folder
    assert folder.stat().st_mtime_ns == before


def test_names_follow_from_values():
    assert folder_name(Prose("english")) != folder_name(Prose("japanese"))
    assert folder_name(Prose("english")).startswith("prose-")


@pytest.mark.parametrize("language", ["english", "japanese"])
def test_held_out_text_is_other_text(language: str):
    train, heldout = (set(paragraphs(language, part)) for part in ("train", "heldout"))
    assert not train & heldout
    assert len(train) > 50 < 3 * len(heldout) or len(heldout) > 20


def test_reviews_have_each_label_and_some_that_are_dropped():
    train, heldout = (list(rows(REVIEWS, part)) for part in ("train", "heldout"))
    assert {row["stars"] for row in train} == {"1", "2", "3", "4", "5"}
    both = {row["body"] for row in train} & {row["body"] for row in heldout}
    assert not both
    good = [row["body"] for row in train if row["stars"] in "45"]
    assert len(good) == len([row for row in train if row["stars"] in "12"]) == 160


def test_a_small_llama_is_a_folder_that_transformers_loads(cache: Path):
    folder = place(cache, INPUTS[4])
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert model.dtype == torch.bfloat16
    assert model.config.num_key_value_heads == 2
    assert model.lm_head.weight.float().std().item() == pytest.approx(0.02, rel=0.02)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("I had been playing a losing game.")["input_ids"]
    assert ids[0] == model.config.bos_token_id
    assert tokenizer.decode(ids[1:]) == "I had been playing a losing game."
    assert len(tokenizer) == model.config.vocab_size == 2048


def test_a_small_japanese_bert_cuts_by_words(cache: Path):
    folder = place(cache, INPUTS[5])
    model, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert model.config.hidden_size == 64
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.tokenize("この鍋はとても使いやすいです。")[:3] == ["この", "鍋", "は"]
    assert "[UNK]" not in tokenizer.tokenize("迅速、丁寧に届きました。")


def test_shards_are_rows_of_two_sentences_with_some_hidden(cache: Path):
    with h5py.File(place(cache, INPUTS[3]) / "train_training_0.hdf5") as file:
        arrays = {key: np.asarray(file[key]) for key in file}
    ids, mask, positions = (arrays[key] for key in ("input_ids", "input_mask", "masked_lm_positions"))
    assert ids.shape == mask.shape == (512, 32)
    assert positions.shape == (512, 5)
    assert (ids[:, 0] == 2).all()
    assert ((ids == 3).sum(1) == 2).all()
    assert 0.4 < arrays["next_sentence_labels"].mean() < 0.6
    hidden = np.take_along_axis(ids, positions, 1)[positions > 0]
    assert 0.7 < (hidden == 4).mean() < 0.9
