import json

import pytest

from kitae.data.inspect import inspect_rows, render
from kitae.data.prepare import prepare
from kitae.errors import DataError


@pytest.fixture
def prepared(write, tmp_path, make_config, tokenizer_folder):
    write("a.txt", "ab\ncdef\n今日は\n")
    config = make_config(
        "a.txt", source={"document": "line"}, sequence_length=8, remainder="pad", bos="always"
    )
    options = {
        "tokenizer_folder": tokenizer_folder,
        "embedding_rows": 400,
        "cache": tmp_path / "cache",
        "seed": 0,
    }
    return prepare(config, base=tmp_path, **options)


def test_a_row_shows_what_the_model_gets(prepared, tokenizer):
    (view,) = inspect_rows(prepared.train, tokenizer, [0])
    rows = prepared.train.rows([0])
    assert view.ids == rows.input_ids[0].tolist()
    assert view.targets == rows.targets[0].tolist()
    assert view.segments == rows.segment_ids[0].tolist()
    assert view.tokens[:4] == ["<b>", "a", "b", "<e>"]
    assert view.positions[:5] == [0, 1, 2, 3, 0]
    assert view.texts[0] == "<b>ab<e>"
    assert view.pieces[:4] == ["<b>", "a", "b", "<e>"]
    assert view.labels == view.ids


def test_padding_is_shown_as_such(prepared, tokenizer):
    last = len(prepared.train) - 1
    (view,) = inspect_rows(prepared.train, tokenizer, [last])
    padded = [place for place, segment in enumerate(view.segments) if segment == 0]
    assert padded
    assert {view.tokens[place] for place in padded} == {"(padding)"}
    assert {view.labels[place] for place in padded} == {-100}
    assert view.texts[-1].endswith("<e>")


def test_text_and_json_say_the_same(prepared, tokenizer):
    text = render(prepared.folder, tokenizer, [0])
    assert f"data {prepared.key}" in text
    assert "before each document ['<b>'], behind it ['<e>']" in text
    assert "train: 3 documents" in text
    assert "\n     1 " in text
    assert text.splitlines()[-8].split()[-1] == "<b>"
    assert "0-3: document 0 from its token 0: '<b>ab<e>'" in text
    content = json.loads(render(prepared.folder, tokenizer, [0, 1], as_json=True))
    assert content["card"] == prepared.card
    assert [row["row"] for row in content["rows"]] == [0, 1]
    assert content["rows"][0]["ids"] == prepared.train.rows([0]).input_ids[0].tolist()
    assert "card" not in json.loads(render(prepared.folder, tokenizer, [0], as_json=True, card=False))


def test_rows_and_splits_that_are_not_there(prepared, tokenizer):
    with pytest.raises(DataError, match="row 99: there are rows 0 to"):
        render(prepared.folder, tokenizer, [99])
    with pytest.raises(DataError, match="no split 'heldout'; there are train"):
        render(prepared.folder, tokenizer, [0], split="heldout")
