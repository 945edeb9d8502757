import json

import pytest
import yaml
from classifier_case import write_japanese_classifier
from japanese_case import write_japanese
from job_case import kitae


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """A recipe of a Japanese classifier that was never run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    write_japanese_classifier(tmp_path / "model")
    lines = [{"text": text, "label": n % 2} for n, text in enumerate(["良い本だ。", "悪い本だ。"] * 5)]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (tmp_path / "a.jsonl").write_text(text)
    values = {
        "kitae": 1,
        "name": "ja",
        "objective": "classification",
        "model": {"folder": "model"},
        "data": {"train": [{"path": "a.jsonl"}], "labels": {}, "sequence_length": 16},
        "training": {"duration": "2 steps", "global_batch_size": 2},
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def report(capsys):
    return {one["subject"]: one for one in json.loads(capsys.readouterr().out)}


def test_a_recipe(recipe, capsys):
    assert kitae("doctor", recipe, "--json") == 0
    found = report(capsys)
    assert found["embedding"]["text"] == "3,072 rows for 3,065 ids"
    assert found["vocabulary"]["text"].endswith("of the recipe's text")
    assert found["cache"]["level"] == "ok"
    assert not (recipe.parent / "runs").exists()


def test_a_folder_for_people_and_the_exit_code(tmp_path, capsys):
    folder = write_japanese(tmp_path / "t")
    assert kitae("doctor", folder) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"ok    {'python':17}  3.")
    assert any(line.startswith(f"ok    {'dictionary':17}  ipadic (ipadic 1.") for line in lines)
    assert kitae("doctor", write_japanese(tmp_path / "u", mecab_kwargs={"mecab_dic": "unidic_lite"})) == 1
    assert f"fail  {'dictionary':17}  the vocabulary holds" in capsys.readouterr().out


def test_a_dictionary_for_files_that_name_none(tmp_path, capsys):
    folder = write_japanese(tmp_path / "t", mecab_kwargs=None)
    assert kitae("doctor", folder) == 1
    assert "name no MeCab dictionary" in capsys.readouterr().out
    assert kitae("doctor", folder, "--dictionary", "ipadic") == 0


def test_the_machine_alone(capsys):
    assert kitae("doctor") == 0
    assert "tokenizer" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["empty"], "empty: neither a run nor the folder of a tokenizer or model"),
        (["nothere.yaml"], "there is no such file"),
    ],
)
def test_a_path_that_is_neither(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert kitae("doctor", *words) == 2
    assert message in capsys.readouterr().err


def test_a_recipe_names_its_dictionary_itself(recipe, capsys):
    assert kitae("doctor", recipe, "--dictionary", "ipadic") == 2
    assert "a recipe has data.tokenizer.dictionary" in capsys.readouterr().err


def test_shards_of_rows_have_no_text_to_look_at(tmp_path, monkeypatch, capsys):
    h5py = pytest.importorskip("h5py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    write_japanese(tmp_path / "t")
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["input_ids"] = [[1, 2]]
    values = {
        "kitae": 1,
        "name": "shards",
        "objective": "masked-lm",
        "model": {"preset": "bert-tiny"},
        "data": {"train": [{"path": "a.hdf5", "format": "hdf5"}], "tokenizer": {"folder": "t"}},
        "training": {"duration": "2 steps", "global_batch_size": 2},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values))
    assert kitae("doctor", "recipe.yaml", "--json") == 0
    found = report(capsys)
    assert "vocabulary" not in found
    assert found["dictionary"]["level"] == "ok"
