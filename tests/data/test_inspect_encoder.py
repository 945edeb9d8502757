"""Rows of encoders, as `kitae inspect` shows them."""

import json

import numpy as np
import pytest
from tiny_wordpiece import IDS, write_wordpiece

from kitae.data.inspect import render
from kitae.data.inspect_encoder import PAIRS, encoder_text, encoder_views
from kitae.data.masked_rows import MaskedRows
from kitae.data.prepare import prepare
from kitae.data.word_tokenizer import load_tokenizer
from kitae.errors import DataError
from kitae.recipe.sources import DataConfig


@pytest.fixture
def tokenizer_home(tmp_path):
    return write_wordpiece(tmp_path / "bert")


@pytest.fixture
def prepared(write, tmp_path, tokenizer_home):
    items = [
        {"text": "good book", "reply": "film", "label": "b"},
        {"text": "bad", "reply": "a", "label": "a"},
    ]
    write("a.jsonl", "".join(json.dumps(item) + "\n" for item in items))
    values = {"train": [{"path": "a.jsonl"}], "labels": {"text_pair_field": "reply"}, "sequence_length": 8}
    return prepare(
        DataConfig.model_validate(values),
        base=tmp_path,
        tokenizer_folder=tokenizer_home,
        embedding_rows=99,
        cache=tmp_path / "cache",
        seed=0,
        objective="classification",
    )


def test_a_labelled_row(prepared, tokenizer_home):
    (view,) = encoder_views(prepared.train, load_tokenizer(tokenizer_home), [0])
    assert view.label == "b"
    assert view.tokens == ["[CLS]", "good", "book", "[SEP]", "film", "[SEP]", "(padding)", "(padding)"]
    assert view.types == [0, 0, 0, 0, 1, 1, 0, 0]
    assert set(view.targets) == {-100}
    lines = encoder_text(view, "train").splitlines()
    assert lines[0] == "train row 0: 6 tokens; b"
    assert lines[1:3] == ["  A: 'good book'", "  B: 'film'"]
    assert lines[5] == f"     1 {IDS['good']:>7}     0    -100  good"


def test_text_and_json_say_the_same(prepared, tokenizer_home):
    tokenizer = load_tokenizer(tokenizer_home)
    text = render(prepared.folder, tokenizer, [0, 1])
    assert f"data {prepared.key}" in text
    assert "train: 2 texts (a 1 (50.0%), b 1 (50.0%))" in text
    assert "train row 1: 5 tokens; a" in text
    content = json.loads(render(prepared.folder, tokenizer, [1], as_json=True))
    assert content["card"] == prepared.card
    assert content["rows"][0]["label"] == "a"


def test_a_row_that_is_not_there(prepared, tokenizer_home):
    with pytest.raises(DataError, match="row 2: there are rows 0 to 1"):
        render(prepared.folder, load_tokenizer(tokenizer_home), [2])


class Masked:
    """One row with two hidden words, and one that is to be told though it stands there."""

    sequence_length = 6

    def __len__(self):
        return 1

    def read(self, samples):
        ids = [IDS[token] for token in ("[CLS]", "good", "[MASK]", "[SEP]", "[MASK]", "[SEP]")]
        return MaskedRows(
            np.array([ids]),
            np.array([[0, 0, 0, 0, 1, 1]]),
            np.array([6]),
            np.array([[1, 2, 4]]),
            np.array([[IDS["good"], IDS["book"], IDS["film"]]]),
            np.array([1]),
        )


def test_a_masked_row_shows_what_is_hidden(tokenizer_home):
    (view,) = encoder_views(Masked(), load_tokenizer(tokenizer_home), [0])
    assert view.label == PAIRS[1]
    assert view.targets == [-100, IDS["good"], IDS["book"], -100, IDS["film"], -100]
    assert view.hidden == ["", "good", "book", "", "film", ""]
    assert view.ways == ["", "kept", "masked", "", "masked", ""]
    assert view.texts == ["good book", "film"]
    text = encoder_text(view, "train")
    assert "6 tokens; the second text is from another document" in text
    lines = text.splitlines()
    assert lines[1:3] == ["  A: 'good book'", "  B: 'film'"]
    assert lines[5].endswith("good  good (kept)")
    assert lines[6].endswith("[MASK]  book")


def test_masks_of_an_epoch(write, tmp_path, tokenizer_home):
    write("a.txt", "\n".join("The good book. A bad film. Not very good." for _ in range(9)))
    values = {"train": [{"path": "a.txt", "document": "line"}], "sequence_length": 24}
    made = prepare(
        DataConfig.model_validate(values),
        base=tmp_path,
        tokenizer_folder=tokenizer_home,
        embedding_rows=99,
        cache=tmp_path / "cache",
        seed=0,
        objective="masked-lm",
    )
    tokenizer = load_tokenizer(tokenizer_home)
    shown = [render(made.folder, tokenizer, [0, 1, 2, 3], epoch=epoch, card=False) for epoch in (0, 1)]
    assert shown[0] != shown[1]
    assert [line for line in shown[0].splitlines() if line.startswith("  A: ")] == [
        line for line in shown[1].splitlines() if line.startswith("  A: ")
    ]
    assert (
        "special_tokens" in json.loads(render(made.folder, tokenizer, [0], as_json=True))["card"]["tokenizer"]
    )
    assert "pairs random" in render(made.folder, tokenizer, [0])
