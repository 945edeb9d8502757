"""Updates that are read late, and trainings with them, on a CPU that says that it collects graphs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from encoder_case import encoder_job
from lazy_cpu import LazyCpu
from tiny_training import job, recipe, rows_of, tiny_decoder

from kitae.backend.group import ALONE
from kitae.data.cursor import Cursor
from kitae.data.examples import Sample
from kitae.errors import RecipeError, StoppedError, TrainingError
from kitae.parallel.mesh import Mesh
from kitae.parallel.shares import Shares
from kitae.train import loop
from kitae.train.batch import global_batch
from kitae.train.build import build_stepper
from kitae.train.late import Late, state_of
from kitae.train.lazy_optimizer import LazyAdamW, LazyLamb
from kitae.train.loop import train
from kitae.train.metrics import read_records
from kitae.train.precision import PRECISIONS
from kitae.train.rounding import ByHardware, KeysThere, RoundingKey

TRAINING = {"duration": "4 steps", "global_batch_size": 6, "micro_batch_size": 2}
OFTEN = {"evaluation": {"every": "2 steps"}, "checkpoint": {"every": "2 steps"}}


def lazily(made):
    return replace(made, backend=LazyCpu())


def numbers(folder):
    records = [one for one in read_records(folder / "run/metrics.jsonl") if "loss" in one]
    return [(one["kind"], one["step"], one["loss"], one.get("grad_norm", 0.0)) for one in records]


def close(one, other, allowed=1e-5):
    assert [line[:2] for line in one] == [line[:2] for line in other]
    for place, factor in ((2, 1), (3, 10)):
        pairs = zip(one, other, strict=True)
        assert max(abs(ours[place] - theirs[place]) for ours, theirs in pairs) <= factor * allowed


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-sr", "autocast"])
def test_a_training_is_the_same_but_for_roundings(optimizer, precision, tmp_path):
    """Also its last update, which has three rows of six."""
    for name, make in (("usual", lambda one: one), ("late", lazily)):
        train_rows = rows_of(tmp_path / name / "train", 27)
        given = {"optimizer": {"name": optimizer, "learning_rate": 0.01}, **OFTEN}
        training = {**TRAINING, "duration": "1 epochs", "precision": precision}
        made = job(tmp_path / name, train=train_rows, training=training, **given)
        train(make(made))
    close(numbers(tmp_path / "usual"), numbers(tmp_path / "late"), 1e-5 if precision == "fp32" else 6e-3)


@pytest.mark.parametrize("objective", ["masked-lm", "classification"])
def test_so_is_that_of_an_encoder(objective, tmp_path):
    for name, make in (("usual", lambda one: one), ("late", lazily)):
        train(make(encoder_job(tmp_path / name, objective, dropout=0.2, training=TRAINING, **OFTEN)))
    close(numbers(tmp_path / "usual"), numbers(tmp_path / "late"))


def test_shapes_do_not_depend_on_the_rows(tmp_path):
    made = lazily(
        job(tmp_path, train=rows_of(tmp_path / "train", 27), training={**TRAINING, "duration": "1 epochs"})
    )
    train(made)
    uses = {one.phase: (one.uses, [i.shape for i in one.inputs]) for one in made.backend.observer.entries}
    wide = [(2, 16)] * 4
    assert uses["train/first"] == uses["train/middle"] == uses["train/last"] == (5, wide)
    assert uses["evaluate"] == (2 * 3, wide)
    assert uses["update"] == (5, [(6,)])


def test_an_update_is_told_when_the_next_is_under_way(tmp_path, monkeypatch):
    """And before anything that needs it: an evaluation, a save, the end."""
    events = []
    begin, tell = loop.Stepper.begin, loop.RunRecorder.update

    def begun(self, batch, rate, *, step, check):
        events.append(f"begin {step}")
        return begin(self, batch, rate, step=step, check=check)

    def told(self, state, *rest):
        events.append(f"tell {state.step}")
        return tell(self, state, *rest)

    monkeypatch.setattr(loop.Stepper, "begin", begun)
    monkeypatch.setattr(loop.RunRecorder, "update", told)
    train(lazily(job(tmp_path, training=TRAINING, evaluation={"every": "3 steps"})))
    assert events == ["begin 1", "begin 2", "tell 1", "begin 3", "tell 2", "tell 3", "begin 4", "tell 4"]


def poisoned(made, row):
    """Let one row overflow."""
    total = int(made.phases[0].train.read([Sample(row)]).input_ids.sum())
    seen = []
    made.model.register_forward_pre_hook(lambda module, inputs: seen.__setitem__(slice(None), [inputs[0]]))

    def spoil(module, inputs, output):
        bad = (seen[0].sum(1) == total)[:, None].expand(seen[0].shape)
        return torch.where(bad.flatten()[:, None], math.inf, output)

    made.model.layers[0].mlp.register_forward_hook(spoil)
    return made


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-sr"])
@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_a_loss_that_is_not_finite_changes_nothing(precision, optimizer, tmp_path):
    """Of step 2, told when step 3 has begun, which changes nothing either."""
    row = Cursor(24, 7).reads(6, 6)[4].number
    training = {**TRAINING, "precision": precision}
    given = {"optimizer": {"name": optimizer, "learning_rate": 0.01}, "training": training}
    straight = lazily(
        job(tmp_path / "straight", **{**given, "training": {**training, "duration": "1 steps"}})
    )
    train(straight)
    made = lazily(poisoned(job(tmp_path / "poisoned", **given), row))
    with pytest.raises(
        TrainingError, match=r"step 2, micro-batch 2, rows .*: the output of layers.0.mlp is not"
    ):
        train(made)
    wanted = dict(straight.model.named_parameters())
    for name, one in made.model.named_parameters():
        torch.testing.assert_close(one, wanted[name], rtol=0, atol=0)


def test_everything_that_an_update_changes_stays_when_it_must(tmp_path):
    made = lazily(job(tmp_path, training=TRAINING))
    made = replace(made, phases=tuple(loop._resolved(one, "cpu") for one in made.phases))
    stepper = build_stepper(made, made.phases[0])
    assert isinstance(stepper.ending, Late)
    samples = [Sample(number) for number in range(6)]
    batch = global_batch(
        made.phases[0].train, samples, 2, torch.device("cpu"), None, stepper.objective.tensors, 3
    )
    stepper.update(batch, 0.01, step=1)
    before = [one.clone() for one in state_of(stepper)]
    batch.counts_there.fill_(math.nan)
    underway = stepper.begin(batch, 0.01, step=2)
    for one, other in zip(state_of(stepper), before, strict=True):
        assert torch.equal(one, other)
    with pytest.raises(TrainingError, match="step 2"):
        underway.result()


def test_a_stop_is_saved_after_what_was_begun_is_told(tmp_path, monkeypatch):
    made = lazily(job(tmp_path, training={**TRAINING, "duration": "8 steps"}))
    calls = []

    def check(self):
        calls.append(1)
        if len(calls) == 14:
            raise loop.StopRequested("SIGTERM")

    monkeypatch.setattr(loop.StopSignals, "check", check)
    with pytest.raises(StoppedError, match=r"after step 2 of 8; it is saved in .*step-00000002"):
        train(made)
    assert [line[1] for line in numbers(tmp_path) if line[0] == "train"] == [1, 2]


@pytest.mark.parametrize("kind", [LazyAdamW, LazyLamb])
def test_numbers_of_an_update(kind):
    """Those that change come as one tensor of six, whatever the update."""
    model = tiny_decoder()
    shares = Shares(model.layouts, ALONE)
    config = recipe(optimizer={"betas": [0.5, 0.75]}).optimizer
    made = kind(
        PRECISIONS["fp32"](model, shares), set(), config, fused=False, seed=0, shares=shares, mesh=Mesh()
    )
    made.restore_step(1)
    grads = {name: torch.ones_like(one) for name, one in model.named_parameters()}
    inputs = made.step_if(torch.ones(1), 0.25, grads)
    assert inputs["numbers"].tolist() == [0.25, 0.5, 0.25, 0.75, 0.75, 0.4375]


@pytest.mark.parametrize("objective", ["causal-lm", "classification"])
def test_where_graphs_are_only_collected_no_value_counts(objective, tmp_path):
    """Those that come back are made up: with NEURON_EXTRACT_GRAPHS_ONLY=1 the compiler only looks on."""

    class Collecting(LazyCpu):
        pretends = True

    sections = {"training": TRAINING, **OFTEN}
    text = objective == "causal-lm"
    made = job(tmp_path, **sections) if text else encoder_job(tmp_path, objective, **sections)
    with torch.no_grad():
        next(made.model.parameters()).fill_(math.nan)
    train(replace(made, backend=Collecting()))
    assert {line[2] for line in numbers(tmp_path)} == {0.0}


def test_rounding_by_the_device_needs_its_switch(tmp_path, monkeypatch):
    class Rounding(LazyCpu):
        rounds_by_chance = True

    made = job(tmp_path, training={**TRAINING, "precision": "bf16-sr"})
    made = replace(made, backend=Rounding(), phases=tuple(loop._resolved(one, "cpu") for one in made.phases))
    monkeypatch.delenv("NEURON_RT_STOCHASTIC_ROUNDING_EN", raising=False)
    with pytest.raises(RecipeError, match="NEURON_RT_STOCHASTIC_ROUNDING_EN=1 turns on"):
        build_stepper(made, made.phases[0])
    monkeypatch.setenv("NEURON_RT_STOCHASTIC_ROUNDING_EN", "1")
    stepper = build_stepper(replace(made, model=tiny_decoder()), made.phases[0])
    assert isinstance(stepper.optimizer._rounding(RoundingKey(1, 1)), ByHardware)


def test_keys_there_are_the_keys():
    key = RoundingKey(3, 9)
    there = KeysThere.of_all(key, ["b", "a", "b"], torch.device("cpu"))
    assert there.numbers.shape == (2, 2)
    for name in "ab":
        assert tuple(int(one) for one in there.of(name)) == key.of(name)
