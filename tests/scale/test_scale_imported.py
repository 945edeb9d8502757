"""Recorded numbers, judged as measured ones are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kitae.errors import RecipeError
from kitae.scale.imported import imported
from kitae.scale.record import read_scales, scale_folder, write_scale

BERT = Path(__file__).parents[1] / "fixtures/scale/bert-large-trn1.csv"


def test_the_published_bert_rows_give_37_to_44_percent_strong_and_85_to_94_weak():
    """facts/neuron.md 6.3: seq/s of 1 and of 16 trn1.32xlarge, by release."""
    strong = imported(BERT, "strong", 0.8).as_json()
    reached = strong["widths"][-1]["efficiency"]
    assert (strong["unit"], strong["rate_of"], strong["base"]) == ("nodes", "sequences", 1)
    assert [round(100 * reached[name]) for name in ("low", "high")] == [37, 44]
    assert "already 16 nodes stay below 80% (42% at 16, 37 to 44%)" in strong["verdict"]
    weak = imported(BERT, "weak", 0.8).as_json()
    reached = weak["widths"][-1]["efficiency"]
    assert [round(100 * reached[name]) for name in ("low", "high")] == [85, 94]
    assert "up to 16 nodes above 80% (87% at 16, 85 to 94%)" in weak["verdict"]


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_of_json_and_of_seconds(tmp_path):
    rows = [{"workers": 1, "step_s": 8.0}, {"workers": 4, "step_s": 2.5}]
    path = write(tmp_path, "rows.json", json.dumps({"rows": rows}))
    strong = imported(path, "strong", 0.8).as_json()
    assert strong["widths"][1]["efficiency"]["median"] == pytest.approx(0.8)
    assert strong["widths"][1]["speedup"] == pytest.approx(3.2)
    path.write_text(json.dumps([{"workers": 1, "step_s": 8.0}, {"workers": 4, "step_s": 10.0}]))
    weak = imported(path, "weak", 0.8).as_json()
    assert weak["widths"][1]["efficiency"]["median"] == pytest.approx(0.8)


def test_rows_without_rounds_are_compared_by_their_place(tmp_path):
    path = write(tmp_path, "rows.csv", 'nodes, tokens_per_s\n1,100\n2,"1,80"\n1,50\n2,90\n')
    found = imported(path, "strong", 0.8).as_json()
    assert found["widths"][1]["efficiency"] == {"median": 0.9, "low": 0.9, "high": 0.9}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "nodes,tokens_per_s\n1,100\n2,fast\n", r"row 2: tokens_per_s: 'fast' is no number above 0"),
        ("a.csv", "nodes,tokens_per_s\n1,-3\n", "row 1: tokens_per_s: '-3' is no number above 0"),
        ("a.csv", "nodes,tokens_per_s\n1.5,3\n", r"row 1: nodes: 1\.5 is no whole number"),
        ("a.csv", "nodes,tokens_per_s\n1\n", "row 1: tokens_per_s: None is no number above 0"),
        ("a.csv", "width,speed\n1,3\n", "no column is a rate; each row needs"),
        ("a.csv", "gpus,tokens_per_s\n1,3\n", "no column is a width; each row needs"),
        ("a.csv", "kind,nodes,tokens_per_s\nweak,1,3\n", "no row is of strong scaling"),
        ("a.csv", "", "no row is of strong scaling"),
        ("a.json", "{", "broken JSON"),
        ("a.json", '{"rows": 3}', "found no list of rows"),
        ("a.json", '{"kitae_scale": 1, "kind": "strong"}', r"this scale\.json lacks 'trials'"),
        ("a.json", '{"kitae_scale": 1, "kind": "weak"}', "it is of weak scaling; give --weak"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_row(tmp_path, name, text, message):
    with pytest.raises(RecipeError, match=message):
        imported(write(tmp_path, name, text), "strong", 0.8)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(RecipeError, match="cannot be read: No such file"):
        imported(tmp_path / "none.csv", "strong", 0.8)
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match="it is no text"):
        imported(tmp_path / "bytes.csv", "strong", 0.8)


def test_a_scale_json_judged_again_says_the_same_and_another_threshold_another_verdict(tmp_path):
    first = imported(BERT, "weak", 0.8).as_json()
    folder = scale_folder(tmp_path, "weak", "nodes", None)
    write_scale(folder, first)
    write_scale(scale_folder(tmp_path) / "old/weak-nodes-1", first)
    again = imported(folder / "scale.json", "weak", 0.8).as_json()
    assert again == first
    assert (
        "already 16 nodes stay below 90%" in imported(folder / "scale.json", "weak", 0.9).as_json()["verdict"]
    )
    assert read_scales(tmp_path) == [json.loads(json.dumps(first))]
    (folder / "scale.json").write_text("{")
    assert read_scales(tmp_path) == []
