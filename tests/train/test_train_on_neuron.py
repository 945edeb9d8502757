"""A training on backend neuron, with a stand-in for the package (see neuron_stand_in)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from encoder_case import encoder_job
from neuron_stand_in import WHOLE, StandIn
from tiny_training import job, tiny_decoder

from kitae.backend.neuron import NeuronBackend
from kitae.errors import RecipeError
from kitae.train.loop import train
from kitae.train.metrics import read_records

WANTED = {"duration": "4 steps", "global_batch_size": 4, "micro_batch_size": 2}


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn(monkeypatch)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch):
    """A compiler of torch called `neuron` that runs graphs as they are, and counts them."""
    from torch._dynamo.backends import registry

    made = []

    def compiler(graph, inputs):
        made.append(graph)
        return graph.forward

    torch._dynamo.reset()
    registry.register_backend(compiler, name="neuron")
    yield made
    for table in (registry._BACKENDS, registry._COMPILER_FNS):
        table.pop("neuron", None)
    torch._dynamo.reset()


def losses(folder: Path) -> list[float]:
    return [one["loss"] for one in read_records(folder / "run" / "metrics.jsonl") if "loss" in one]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_decoder_has_the_losses_of_the_cpu(precision: str, tmp_path: Path, plays: StandIn):
    """Static shapes: every target is computed and masked. In bf16 sums have another order."""
    plays(**WHOLE)
    wanted = {**WANTED, "precision": precision}
    train(job(tmp_path / "cpu", training=wanted))
    train(replace(job(tmp_path / "neuron", training=wanted), backend=NeuronBackend()))
    near = 1e-6 if precision == "fp32" else 1e-2
    assert losses(tmp_path / "neuron") == pytest.approx(losses(tmp_path / "cpu"), abs=near)
    start = next(iter(read_records(tmp_path / "neuron/run/metrics.jsonl")))
    assert (start["backend"], start["attention"]) == ("neuron", "plain")
    assert "computes scaled_dot_product_attention itself" in start["attention_reason"]


@pytest.mark.parametrize("objective", ["masked-lm", "classification"])
def test_an_encoder_has_the_losses_of_the_cpu(objective: str, tmp_path: Path, plays: StandIn):
    plays(**WHOLE)
    train(encoder_job(tmp_path / "cpu", objective, dropout=0.1, training=WANTED))
    there = encoder_job(tmp_path / "neuron", objective, dropout=0.1, training=WANTED)
    train(replace(there, backend=NeuronBackend()))
    assert losses(tmp_path / "neuron") == pytest.approx(losses(tmp_path / "cpu"), abs=1e-5)


def test_it_goes_on_to_the_same_bits(tmp_path: Path, plays: StandIn):
    plays(**WHOLE)
    wanted = {"training": {**WANTED, "precision": "bf16"}, "checkpoint": {"every": "2 steps", "keep": 9}}

    def weights(name: str) -> list[bytes]:
        train(replace(job(tmp_path / name, **wanted), backend=NeuronBackend()))
        last = tmp_path / name / "run/checkpoints/step-00000004"
        return [one.read_bytes() for one in sorted(last.glob("*.safetensors"))]

    whole = weights("whole")
    kept = "run/checkpoints/step-00000002"
    shutil.copytree(tmp_path / "whole" / kept, tmp_path / "broken" / kept)
    assert weights("broken") == whole
    assert whole


def test_the_chip_rounds_when_it_is_told_to(tmp_path: Path, plays: StandIn, monkeypatch: pytest.MonkeyPatch):
    """Without the switch, small updates would be lost without a word."""
    plays(**WHOLE)
    wanted = {**WANTED, "precision": "bf16-sr"}
    monkeypatch.delenv("NEURON_RT_STOCHASTIC_ROUNDING_EN", raising=False)
    with pytest.raises(RecipeError, match="NEURON_RT_STOCHASTIC_ROUNDING_EN=1 turns on"):
        train(replace(job(tmp_path / "off", training=wanted), backend=NeuronBackend()))
    monkeypatch.setenv("NEURON_RT_STOCHASTIC_ROUNDING_EN", "1")
    train(replace(job(tmp_path / "on", training=wanted), backend=NeuronBackend()))
    assert losses(tmp_path / "on")


def test_layers_are_compiled_once_for_their_static_shape(plays: StandIn, programs):
    plays(**WHOLE)
    plain, compiled = tiny_decoder(), tiny_decoder()
    told = NeuronBackend().compile(compiled)
    assert told == "2 layers go through torch.compile (backend neuron, static shapes)"
    ids = torch.arange(32).view(2, 16)
    positions = torch.arange(16).expand(2, 16)
    segments = torch.ones(2, 16, dtype=torch.long)
    for _ in range(3):
        found = compiled(ids, positions, segments)
        assert torch.allclose(found, plain(ids, positions, segments), atol=1e-6)
        found.sum().backward()
    assert 0 < len(programs) <= 2 * len(plain.layers) * 4
    count = len(programs)
    compiled(ids + 1, positions, segments)
    assert len(programs) == count


def test_without_a_compiler_layers_run_eagerly_and_it_is_said(plays: StandIn):
    plays(**WHOLE)
    told = NeuronBackend().compile(tiny_decoder())
    assert told == "torch-neuronx 2.14.3.0 has no compiler for torch.compile: layers run eagerly"
