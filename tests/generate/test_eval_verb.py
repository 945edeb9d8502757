"""`kitae eval` of a text: perplexity that no batch size and no other document changes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from job_case import kitae
from tiny_language import write_language_model
from tiny_tokenizer import SENTENCES, train_backend
from transformers import AutoModelForCausalLM

from kitae.generate import judge as room
from kitae.generate.judge import Piece, pieces_of


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(tmp_path_factory.mktemp("model") / "tiny", initializer_range=0.4)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Documents of several lengths, one a line."""
    file = tmp_path / "text.txt"
    lines = [one.replace("\n", " ") for one in SENTENCES]
    file.write_text("\n".join([*lines, " ".join(lines), "x"]) + "\n", encoding="utf-8")
    return file


def judged(capsys: pytest.CaptureFixture, model: Path, *words: object) -> dict:
    assert kitae("eval", model, "--json", *words) == 0
    return json.loads(capsys.readouterr().out)


def by_transformers(model: Path, text: Path, length: int) -> tuple[float, int]:
    """Sum of the losses and number of predicted tokens, each document alone and in pieces."""
    stock = AutoModelForCausalLM.from_pretrained(model)
    backend = train_backend()
    nats, tokens = 0.0, 0
    for line in text.read_text().splitlines():
        ids = backend.encode(line, add_special_tokens=False).ids
        for first in range(0, len(ids) - 1, length):
            part = torch.tensor([ids[first : first + length + 1]])
            with torch.no_grad():
                logits = stock(part[:, :-1]).logits[0]
            nats += float(torch.nn.functional.cross_entropy(logits, part[0, 1:], reduction="sum"))
            tokens += part.shape[1] - 1
    return nats, tokens


@pytest.mark.parametrize("length", [64, 7])
def test_perplexity_and_bits_per_byte_are_those_of_transformers(
    model: Path, text: Path, length: int, capsys: pytest.CaptureFixture
):
    found = judged(capsys, model, "--data", text, "--document", "line", "--sequence-length", length)
    nats, tokens = by_transformers(model, text, length)
    assert (found["tokens"], found["documents"]) == (tokens, 8)
    assert found["bytes"] == sum(len(line.encode()) for line in text.read_text().splitlines())
    assert found["loss"] == pytest.approx(nats / tokens, abs=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(nats / tokens), rel=1e-4)
    assert found["bits_per_byte"] == pytest.approx(nats / math.log(2) / found["bytes"], rel=1e-5)
    assert found["sequence_length"] == length


@pytest.mark.parametrize("size", [1, 40, 100000])
def test_the_batch_size_changes_nothing(
    model: Path, text: Path, size: int, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """T-row of cases.md 32: the loss depends on the batch size."""
    wanted = judged(capsys, model, "--data", text, "--document", "line")["loss"]
    monkeypatch.setattr(room, "BATCH_TOKENS", size)
    monkeypatch.setattr(room, "LOGITS_TOKENS", 5)
    monkeypatch.setattr(room, "SORTED_PIECES", 3)
    found = judged(capsys, model, "--data", text, "--document", "line")["loss"]
    assert found == pytest.approx(wanted, abs=1e-6)


def test_documents_do_not_see_each_other(model: Path, text: Path, capsys: pytest.CaptureFixture):
    words = ("--document", "line")
    one = judged(capsys, model, "--data", text, *words)
    lines = text.read_text().splitlines()
    text.write_text("\n".join(reversed(lines)))
    other = judged(capsys, model, "--data", text, *words)
    assert one["loss"] == pytest.approx(other["loss"], abs=1e-6)


def test_int8_is_judged_with_its_cost(model: Path, text: Path, capsys: pytest.CaptureFixture):
    plain = judged(capsys, model, "--data", text)
    found = judged(capsys, model, "--data", text, "--quantize", "int8")
    assert found["unquantised"] == plain
    assert found["perplexity"] != plain["perplexity"]
    assert found["perplexity_cost"] == pytest.approx(found["perplexity"] / plain["perplexity"] - 1)
    assert abs(found["perplexity_cost"]) < 0.1
    assert kitae("eval", model, "--data", text, "--quantize", "int8") == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith(f"loss {found['loss']:.4f} nats/token, perplexity {found['perplexity']:.3f}")
    assert second.startswith(f"without int8: loss {plain['loss']:.4f} nats/token")
    assert third == f"int8 costs {100 * found['perplexity_cost']:+.2f} % of perplexity"


def test_files_without_a_known_ending_are_text(model: Path, text: Path, capsys: pytest.CaptureFixture):
    wanted = judged(capsys, model, "--data", text)
    assert judged(capsys, model, "--data", text.rename(text.with_suffix(".md"))) == wanted


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--data", "nothere.txt"], 3, "nothere.txt"),
        (["--data", "short.txt"], 3, "there is nothing to predict in it; give longer documents"),
        (
            ["--data", "short.txt", "--sequence-length", "65"],
            2,
            "--sequence-length: 65 where the model has 64",
        ),
        (["--data", "short.txt", "--tasks", "x"], 2, "give --data or --tasks, and not both"),
        (["--data", "short.txt", "--model", "x"], 2, "--model and --set belong to a recipe's rows"),
        (["--data", "short.txt", "--tp", "3"], 2, "--tp 3 does not fit this model"),
        (["--tp", "2"], 2, "--tp needs --data"),
        (["--data", "short.txt", "--limit", "3"], 2, "--tasks-folder and --limit need --tasks"),
        (["--dtype", "bf16"], 2, "--dtype needs --data or --tasks"),
        (["--data", "short.txt", "--backend", "neuron"], 2, "backend 'neuron' cannot be used"),
        ([], 2, "there is no recipe.yaml in it"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    words: list[str],
    code: int,
    message: str,
):
    monkeypatch.chdir(tmp_path)
    Path("short.txt").write_text("x")
    assert kitae("eval", model, *words) == code
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1


def test_pieces_judge_every_token_but_the_first_once():
    for count in range(12):
        pieces = list(pieces_of(range(count), 4))
        assert [token for one in pieces for token in one.ids[1:]] == list(range(1, count))
        assert all(one.judged == len(one.ids) - 1 <= 4 for one in pieces)
    assert list(pieces_of([7, 8], 4)) == [Piece([7, 8], 1)]
