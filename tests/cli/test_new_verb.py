"""`kitae new`: by options and by questions, for each thing to do; what it writes is right and fits."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kitae.catalog.models import named_models
from kitae.cli.main import main
from kitae.recipe.load import load_recipe
from kitae.recipe.resolve import resolve
from kitae.recipe.starter import WHATS
from kitae.stages.starting import _SIZES, model_of

TEXT = "One paragraph of prose.\n\nAnother one, which is longer than the first.\n" * 400


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "prose.txt").write_text(TEXT, "utf-8")
    (tmp_path / "ja.txt").write_text("今日は天気がいいです。\n散歩に行きます。\n", "utf-8")
    rows = [{"body": f"number {n} is fine", "id": n, "stars": n % 5 + 1} for n in range(40)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (tmp_path / "rows.csv").write_text("sentence,mood\nfine day,good\nbad day,bad\nok,good\n", "utf-8")
    return tmp_path


def made(*words: str) -> dict:
    assert main(["new", "mine.yaml", *words]) == 0
    recipe = load_recipe(Path("mine.yaml")).recipe
    assert resolve(recipe, backend="cpu").warnings == ()
    assert "#" in Path("mine.yaml").read_text()
    found: dict = yaml.safe_load(Path("mine.yaml").read_text())
    return found


def test_a_text_is_gone_on_with(capsys: pytest.CaptureFixture):
    found = made("--what", "continue", "--model", "smollm2-135m", "--text", "prose.txt")
    assert (found["name"], found["model"]) == ("mine", {"named": "smollm2-135m"})
    (source,) = found["data"]["train"]
    assert source == {"path": str(Path("prose.txt").absolute()), "document": "paragraph"}
    assert "mine.yaml is written: fits: " in capsys.readouterr().out


def test_a_small_model_begins_from_nothing():
    found = made("--what", "pretrain", "--model", "llama-tiny", "--text", "ja.txt")
    assert found["data"]["tokenizer"] == {"named": "smollm2-135m"}
    assert found["data"]["train"][0]["document"] == "line"
    assert found["training"]["duration"] == "20 steps"


@pytest.mark.parametrize(
    ("text", "field", "label", "values"),
    [
        ("rows.jsonl", "body", "stars", {str(n): f"class-{n}" for n in range(1, 6)}),
        ("rows.csv", "sentence", "mood", {"bad": "bad", "good": "good"}),
    ],
)
def test_labels_are_found(text: str, field: str, label: str, values: dict):
    found = made("--what", "classify", "--model", "google-bert/bert-base-uncased", "--text", text)
    assert found["data"]["train"][0]["text_field"] == field
    assert found["data"]["labels"] == {"field": label, "values": values}
    assert (found["objective"], found["data"]["sequence_length"]) == ("classification", 128)


@pytest.mark.parametrize(
    ("text", "tokenizer"),
    [
        ("prose.txt", {"hub": "google-bert/bert-base-uncased"}),
        ("ja.txt", {"hub": "cl-tohoku/bert-base-japanese-whole-word-masking", "dictionary": "ipadic"}),
    ],
)
def test_a_bert_gets_a_tokenizer_of_its_language(text: str, tokenizer: dict):
    assert made("--what", "masked", "--model", "bert-tiny", "--text", text)["data"]["tokenizer"] == tokenizer


def test_a_model_of_unknown_size_is_not_planned(capsys: pytest.CaptureFixture):
    made("--what", "continue", "--model", "somebody/some-model", "--text", "prose.txt")
    assert "its sizes are not known here yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--what", "pretrain", "--model", "llama3.1-8b", "--text", "prose.txt"],
            "does not fit here even in short rows",
        ),
        (
            ["--what", "bake", "--model", "llama-tiny", "--text", "prose.txt"],
            "'bake' is none of continue, pretrain",
        ),
        (["--what", "pretrain", "--model", "llama-tny", "--text", "prose.txt"], "did you mean llama-tiny"),
        (["--what", "pretrain", "--model", "bert-tiny", "--text", "prose.txt"], "of the other kind"),
        (
            ["--what", "pretrain", "--model", "llama-tiny", "--text", "nothing.txt"],
            "nothing.txt is not there",
        ),
        (["--what", "classify", "--model", "bert-tiny", "--text", "prose.txt"], "has no labels"),
        (
            ["--what", "pretrain"],
            "asks three questions, and nobody can answer here; give --what, --model and --text",
        ),
    ],
)
def test_what_cannot_be_written_is_said(words: list[str], said: str, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115, PTH123
    assert main(["new", "mine.yaml", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert not Path("mine.yaml").exists()


def test_nothing_is_overwritten(capsys: pytest.CaptureFixture):
    Path("mine.yaml").write_text("my own")
    words = ["--what", "pretrain", "--model", "llama-tiny", "--text", "prose.txt"]
    assert main(["new", "mine.yaml", *words]) == 2
    assert "is there already, and is left as it is" in capsys.readouterr().err
    assert Path("mine.yaml").read_text() == "my own"


def test_the_questions_are_answered_at_a_terminal(folder: Path):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kitae.cli.main", "new", "asked.yaml"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        text=True,
    )
    os.close(theirs)
    os.write(ours, b"pretrain\nprose.txt\nllama-tiny\n")
    out, _ = process.communicate(timeout=120)
    os.close(ours)
    assert process.returncode == 0, out
    assert all(said in out for said in WHATS.values())
    assert load_recipe(folder / "asked.yaml").recipe.model.preset == "llama-tiny"


def test_sizes_of_every_packaged_model_are_known():
    assert set(_SIZES) == set(named_models())
    assert model_of("continue", "smollm2-135m") == ("named", "smollm2-135m")
