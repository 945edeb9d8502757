"""The recipe's attention in a training; a chip is played by the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_training import job, recipe, tiny_decoder

from kitae.backend.table import select
from kitae.errors import RecipeError
from kitae.model import neuron_attention
from kitae.model.attention import OwnKernel
from kitae.model.neuron_attention import NONE_KNOWN
from kitae.train import chip_attention
from kitae.train.chip_attention import settle_attention
from kitae.train.loop import train
from kitae.train.metrics import read_records

WANTED = {"duration": "2 steps", "global_batch_size": 4, "micro_batch_size": 2}


@pytest.fixture
def chip(monkeypatch: pytest.MonkeyPatch):
    """A chip whose kernel fits every length, and gives zeros."""
    monkeypatch.setattr(chip_attention, "stack_here", lambda backend: "trn1-xla")
    monkeypatch.setattr(neuron_attention, "LENGTH_MULTIPLE", 16)
    kernel = OwnKernel(lambda q, k, v: torch.zeros_like(q))
    monkeypatch.setattr(neuron_attention, "SOURCES", {"trn1-xla": lambda: kernel})
    return kernel


def start_line(folder: Path) -> dict[str, object]:
    return next(one for one in read_records(folder / "run/metrics.jsonl") if one["kind"] == "start")


def test_the_choice_is_told_and_recorded(tmp_path: Path, chip):
    told: list[str] = []
    wanted = {**WANTED, "precision": "bf16", "attention": "kernel"}
    one = replace(job(tmp_path, training=wanted), report=told.append)
    train(one)
    line = "training.attention says so: documents that share a row see each other"
    assert f"attention: the SDK's flash kernel: {line}" in told
    assert (start_line(tmp_path)["attention"], start_line(tmp_path)["attention_reason"]) == ("kernel", line)
    assert one.model.kernel is chip


def test_the_kernel_is_what_computes(chip):
    ids = torch.arange(32).view(2, 16)
    positions, segments = torch.arange(16).expand(2, 16), torch.ones(2, 16, dtype=torch.long)
    model, other = tiny_decoder(), tiny_decoder()
    model.kernel = chip
    with torch.no_grad():
        for layer in other.layers:
            layer.attention.out.weight.zero_()
        assert torch.equal(model(ids, positions, segments), other(ids, positions, segments))


def test_where_documents_are_kept_apart_the_plain_form_computes(tmp_path: Path, chip):
    one = job(tmp_path, training={**WANTED, "precision": "bf16"})
    train(one)
    assert one.model.kernel is None
    assert start_line(tmp_path)["attention"] == "plain"


def test_a_kernel_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch, chip):
    monkeypatch.setattr(neuron_attention, "SOURCES", {"trn1-xla": NONE_KNOWN})
    asked = recipe(training={**WANTED, "precision": "bf16", "attention": "kernel"})
    with pytest.raises(RecipeError, match=r"training\.attention: the kernel cannot be used"):
        settle_attention(tiny_decoder(), select("cpu"), asked)


def test_a_cpu_has_no_choice_and_says_nothing(tmp_path: Path):
    told: list[str] = []
    train(replace(job(tmp_path, training={**WANTED, "attention": "kernel"}), report=told.append))
    assert not [line for line in told if line.startswith("attention")]
    assert "attention" not in start_line(tmp_path)
