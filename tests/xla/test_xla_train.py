"""Trainings on torch-xla against the same ones on the CPU, with execution forbidden but at boundaries."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

pytest.importorskip("torch_xla")

from encoder_case import encoder_job
from tiny_training import job, rows_of
from xla_case import both, largest_difference, on_xla

from kitae.data.cursor import Cursor
from kitae.data.examples import Sample
from kitae.errors import PrecompileError, TrainingError
from kitae.train import loop
from kitae.train.loop import train
from kitae.train.objective import CausalLM

pytestmark = pytest.mark.xla

TRAINING = {"duration": "4 steps", "global_batch_size": 6, "micro_batch_size": 2, "precision": "fp32"}
OFTEN = {"evaluation": {"every": "2 steps"}, "checkpoint": {"every": "2 steps", "asynchronous": True}}
BF16 = 5e-3
"""What another order of sums makes of losses near 4: half of the spacing of bf16 numbers there is 8e-3."""


def decoder(folder, optimizer="adamw", **training):
    given = {"optimizer": {"name": optimizer, "learning_rate": 0.01}, **OFTEN}
    return job(folder, training={**TRAINING, **training}, **given)


def ragged(folder):
    """27 rows in updates of 6: the last one has three rows in two micro-batches, of three that there are."""
    path = folder / "train"
    return job(folder, train=rows_of(path, 27), training={**TRAINING, "duration": "1 epochs"}, **OFTEN)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The decoder, evaluated and saved on its way, with a ragged last update."""
    return both(tmp_path_factory.mktemp("ragged"), ragged)


def test_a_decoder_trains_to_the_losses_of_the_cpu(trained):
    cpu, xla = trained
    assert len(cpu.losses()) == 5 + 4
    assert largest_difference(cpu.losses(), xla.losses()) <= 1e-5
    assert largest_difference(cpu.norms(), xla.norms()) <= 1e-5


def test_every_program_is_in_the_ledger(trained):
    """T56: as many are compiled as it knows, each once; the last update and the saves bring none."""
    _, xla = trained
    assert xla.compiled == xla.new_keys
    uses = {one.phase: one.uses for one in xla.ledger.entries}
    train_uses = dict.fromkeys(("train/first", "train/middle", "train/last", "update"), 5)
    assert uses == {"begin": 1, "evaluate": 4 * 3, **train_uses}
    assert {one.first_step for one in xla.ledger.entries} == {0}
    assert len({one.artefact for one in xla.ledger.entries if one.key}) == xla.compiled


def test_the_run_says_which_graphs_there_were(trained):
    for one, name in zip(trained, ("cpu", "xla"), strict=True):
        found = json.loads((one.folder / "graphs.json").read_text())
        assert (found["format"], found["backend"]) == (1, name)
        graphs = {graph["phase"]: graph for graph in found["graphs"]}
        assert graphs["evaluate"]["inputs"][0] == {"name": "input_ids", "shape": [2, 16], "dtype": "int64"}
        assert (graphs["update"]["key"] is None) == (name == "cpu")


def test_nothing_is_computed_on_the_host(trained):
    from torch_xla.debug import metrics

    assert metrics.executed_fallback_ops() == []


@pytest.mark.parametrize(
    ("optimizer", "precision", "allowed"),
    [
        ("lamb", "fp32", 1e-5),
        ("adamw", "bf16", BF16),
        ("adamw", "bf16-sr", BF16),
        ("adamw", "autocast", BF16),
    ],
)
def test_precisions_and_optimizers(optimizer, precision, allowed, tmp_path):
    cpu, xla = both(tmp_path, lambda folder: decoder(folder, optimizer, precision=precision))
    assert largest_difference(cpu.losses(), xla.losses()) <= allowed
    assert xla.compiled == xla.new_keys


@pytest.mark.parametrize(
    ("objective", "optimizer", "precision", "allowed"),
    [
        ("masked-lm", "lamb", "fp32", 1e-5),
        ("classification", "adamw", "fp32", 1e-5),
        ("classification", "adamw", "bf16", BF16),
    ],
)
def test_an_encoder_drops_the_same_elements(objective, optimizer, precision, allowed, tmp_path):
    """BERT with dropout, and with sentence pairs; a mask with one other bit changes the loss by 1e-3."""
    given = {"optimizer": {"name": optimizer, "learning_rate": 0.01}, **OFTEN}
    training = {**TRAINING, "precision": precision}

    def make(folder):
        return encoder_job(folder, objective, dropout=0.1, training=training, **given)

    cpu, xla = both(tmp_path, make)
    assert largest_difference(cpu.losses(), xla.losses()) <= allowed
    assert xla.compiled == xla.new_keys


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputing_changes_no_loss(recompute, tmp_path):
    cpu, xla = both(tmp_path, lambda folder: decoder(folder, recompute=recompute, duration="2 steps"))
    assert largest_difference(cpu.losses(), xla.losses()) <= 1e-5


def test_a_phase_may_bring_graphs_of_its_own(tmp_path):
    """BERT's second phase has longer rows; the ledger knows both, and neither brings a graph later."""
    from encoder_case import Masked

    longer = {"data": {"train": [{"path": "text"}], "sequence_length": 16}}
    phases = (("short", Masked(24), {}), ("long", Masked(24, 16), longer))
    training = {**TRAINING, "duration": "2 steps"}

    def make(folder):
        return encoder_job(folder, "masked-lm", phases=phases, training=training)

    cpu, xla = both(tmp_path, make)
    assert largest_difference(cpu.losses(), xla.losses()) <= 1e-5
    first = {
        (one.stretch, one.inputs[0].shape[1]) for one in xla.ledger.entries if one.phase == "train/first"
    }
    assert first == {("short", 12), ("long", 16)}
    assert xla.compiled == xla.new_keys


def spoiled(made, row):
    """Let one row of the training overflow, by operations that a graph can hold."""
    total = int(made.phases[0].train.read([Sample(row)]).input_ids.sum())
    seen = []

    def note(module, inputs):
        seen[:] = [inputs[0]]

    def spoil(module, inputs, output):
        bad = (seen[0].sum(1) == total)[:, None].expand(seen[0].shape)
        return torch.where(bad.flatten()[:, None], math.inf, output)

    made.model.register_forward_pre_hook(note)
    made.model.layers[1].mlp.register_forward_hook(spoil)
    return made


def test_a_loss_that_is_not_finite_is_told_as_on_the_cpu(tmp_path):
    """Though it is read one update later: step, rows and module, and weights as they were before it."""
    row = Cursor(24, 7).reads(12, 6)[3].number
    told, weights = [], []
    for make in (lambda one: one, on_xla):
        made = make(spoiled(job(tmp_path / str(len(told)), training=TRAINING), row))
        with pytest.raises(TrainingError) as caught:
            train(made)
        told.append(str(caught.value))
        weights.append({name: one.detach().cpu() for name, one in made.model.named_parameters()})
    assert told[0].startswith("step 3, micro-batch 1, rows ")
    assert "the output of layers.1.mlp is not finite" in told[0]
    assert told[1] == told[0]
    for name, one in weights[0].items():
        torch.testing.assert_close(weights[1][name], one, rtol=0, atol=1e-6)


def other_shapes(monkeypatch, from_call):
    """Let micro-batches have three rows instead of two, from some update on."""
    usual, calls = loop.global_batch, []

    def changed(examples, samples, size, *rest):
        calls.append(size)
        return usual(examples, samples, size + (len(calls) >= from_call), *rest)

    monkeypatch.setattr(loop, "global_batch", changed)


def test_a_new_shape_after_the_first_update_is_an_error(tmp_path, monkeypatch):
    other_shapes(monkeypatch, from_call=3)
    with pytest.raises(PrecompileError) as caught:
        train(on_xla(job(tmp_path, training=TRAINING)))
    told = str(caught.value)
    assert told.startswith(
        "after step 2: a new graph, which costs a compilation in the training; train/first: "
    )
    assert "input_ids was [2, 16] int64 and is [3, 16] int64" in told
    assert "target.new_graphs: warn" in told


def test_a_new_shape_can_be_allowed(tmp_path, monkeypatch):
    lines = []
    other_shapes(monkeypatch, from_call=4)
    made = on_xla(job(tmp_path, training=TRAINING, target={"new_graphs": "warn"}))
    assert train(replace(made, report=lines.append)).steps == 4
    told = [line for line in lines if line.startswith("warning: after step 3: a new graph")]
    assert [line.split("training; ")[1].split(":")[0] for line in told] == [
        "train/first",
        "train/middle",
        "train/last",
    ]


def test_a_number_that_is_written_into_a_graph_is_found(tmp_path, monkeypatch):
    """torch-xla makes constants of 0 and 1, and inputs of all other numbers."""
    usual = CausalLM.loss

    def weighted(self, part, counts, step):
        return usual(self, part, counts, step) * (0.5 * step)

    monkeypatch.setattr(CausalLM, "loss", weighted)
    with pytest.raises(PrecompileError, match=r"after step 1: .* a number that is written into the graph"):
        train(on_xla(job(tmp_path, training=TRAINING)))


def test_a_value_that_is_read_in_between_is_found(tmp_path, monkeypatch):
    usual = CausalLM.loss

    def curious(self, part, counts, step):
        found = usual(self, part, counts, step)
        if step == 3:
            found.detach().item()
        return found

    monkeypatch.setattr(CausalLM, "loss", curious)
    with pytest.raises(
        PrecompileError, match=r"after step 2: .* 1 programs were compiled for values that were"
    ):
        train(on_xla(job(tmp_path, training=TRAINING)))
