"""A training on backend neuron, with a stand-in for the package (see neuron_stand_in)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from neuron_stand_in import WHOLE, StandIn
from tiny_training import job, tiny_decoder

from kitae.backend.neuron import NeuronBackend
from kitae.train.loop import train
from kitae.train.metrics import read_records


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


def test_a_training_has_the_losses_of_the_cpu(tmp_path: Path, plays: StandIn):
    plays(**WHOLE)
    wanted = {"duration": "4 steps", "global_batch_size": 4, "micro_batch_size": 2, "precision": "fp32"}
    train(replace(job(tmp_path / "cpu", training=wanted), report=lambda line: None))
    backend = NeuronBackend()
    train(replace(job(tmp_path / "neuron", training=wanted), backend=backend, report=lambda line: None))
    assert losses(tmp_path / "neuron") == pytest.approx(losses(tmp_path / "cpu"), abs=1e-6)
    (start,) = [one for one in read_records(tmp_path / "neuron/run/metrics.jsonl") if one["kind"] == "start"]
    assert start["backend"] == "neuron"


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
