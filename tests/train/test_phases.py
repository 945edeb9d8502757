import json

import numpy as np
import pytest
import torch
from encoder_case import Masked, encoder_job
from ranks import run_ranks

from kitae.checkpoint.resume import open_checkpoint
from kitae.data.examples import Sample
from kitae.train.course import course_of
from kitae.train.loop import train
from kitae.train.metrics import read_records
from kitae.train.step import Stepper

SHORT, LONG = Masked(24, 12), Masked(16, 20)


def phases(precision="fp32"):
    both = {"micro_batch_size": 1, "precision": precision}
    return (
        (
            "short",
            SHORT,
            {
                "training": {"duration": "5 steps", "global_batch_size": 4, **both},
                "optimizer": {"name": "lamb", "learning_rate": 6e-3, "eps": 1e-6},
                "schedule": {"kind": "linear", "warmup": "2 steps"},
            },
        ),
        (
            "long",
            LONG,
            {
                "training": {"duration": "4 steps", "global_batch_size": 6, **both},
                "optimizer": {"name": "lamb", "learning_rate": 4e-3, "eps": 1e-6, "weight_decay": 0.01},
                "schedule": {"kind": "linear", "warmup": "1 steps"},
            },
        ),
    )


def job(folder, precision="fp32", mesh=None, **sections):
    given = {"checkpoint": {"every": "2 steps"}, "evaluation": {"every": "2 steps"}, **sections}
    return encoder_job(folder, "masked-lm", mesh, phases=phases(precision), dropout=0.1, **given)


def shown(folder):
    """Losses, norms, rates and held-out losses of all steps, without times."""
    names = ("kind", "step", "phase", "loss", "grad_norm", "learning_rate", "masked_accuracy")
    records = read_records(folder / "run" / "metrics.jsonl")
    return [
        {name: record[name] for name in names if name in record}
        for record in records
        if record["kind"] != "start"
    ]


def weights(folder):
    checkpoint = open_checkpoint(folder / "run" / "checkpoints" / "step-00000009")
    return {
        (kind, name): checkpoint.source(kind).read(name)
        for kind in checkpoint.manifest.tensors
        for name in checkpoint.source(kind).tensors()
    }


class Killed(BaseException):
    pass


def killed_at(monkeypatch, step):
    usual = Stepper.begin

    def update(self, batch, rate, *, step: int, check, _last=step):
        if step == _last:
            raise Killed
        return usual(self, batch, rate, step=step, check=check)

    monkeypatch.setattr(Stepper, "begin", update)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-sr"])
def test_killed_anywhere_and_resumed_is_the_straight_run(precision, tmp_path, monkeypatch):
    """In each phase and at the border between them; to the bit."""
    train(job(tmp_path / "straight", precision))
    for step in (3, 5, 6, 8) if precision == "fp32" else (4, 8):
        folder = tmp_path / str(step)
        with monkeypatch.context() as patch:
            killed_at(patch, step)
            with pytest.raises(Killed):
                train(job(folder, precision))
        train(job(folder, precision))
        assert shown(folder) == shown(tmp_path / "straight")
        again = weights(folder)
        assert all(torch.equal(one, again[name]) for name, one in weights(tmp_path / "straight").items())


def test_a_phase_has_its_own_rates_rows_and_optimizer(tmp_path):
    made = job(tmp_path)
    result = train(made)
    assert result.steps == course_of(made).steps == 9
    updates = [record for record in shown(tmp_path) if record["kind"] == "train"]
    assert [record["phase"] for record in updates] == ["short"] * 5 + ["long"] * 4
    rates = [record["learning_rate"] for record in updates]
    assert rates == pytest.approx([3e-3, 6e-3, 6e-3, 4e-3, 2e-3, 4e-3, 4e-3, 4e-3 * 2 / 3, 4e-3 / 3])
    short, long = json.loads((tmp_path / "run" / "results.json").read_text())["phases"]
    assert (short["steps"], short["sequence_length"], short["rows"]) == (5, 12, 20)
    assert (long["steps"], long["sequence_length"], long["rows"]) == (4, 20, 24)
    assert short["heldout"]["loss_before"] != long["heldout"]["loss_before"]
    border = open_checkpoint(tmp_path / "run" / "checkpoints" / "step-00000005")
    after = open_checkpoint(tmp_path / "run" / "checkpoints" / "step-00000006")
    assert (border.state["consumed_samples"], after.state["consumed_samples"]) == (20, 6)
    moment = next(iter(border.source("exp_avg").tensors()))
    first = after.source("exp_avg_sq").read(moment)
    assert first.abs().max() < border.source("exp_avg_sq").read(moment).abs().max()


def in_rank(mesh, folder):
    parallel = {
        "data_parallel_size": mesh.data.size,
        "tensor_parallel_size": mesh.tensor.size,
        "zero1": mesh.data.size > 1,
    }
    train(job(folder, mesh=mesh, parallel=parallel))


@pytest.mark.parametrize(("ranks", "tp_size"), [(2, 1), (2, 2)])
def test_phases_on_ranks_are_those_of_one_process(ranks, tp_size, tmp_path):
    train(job(tmp_path / "one"))
    run_ranks(ranks, in_rank, tmp_path / "ranks", tp_size=tp_size)
    for one, other in zip(shown(tmp_path / "one"), shown(tmp_path / "ranks"), strict=True):
        assert (one["step"], one["phase"]) == (other["step"], other["phase"])
        assert one["loss"] == pytest.approx(other["loss"], abs=2e-5)


def test_masks_of_another_epoch_are_others(tmp_path):
    """Dynamic masks depend on how often a row was read."""
    first, second = (SHORT.read([Sample(3, epoch)]) for epoch in (0, 1))
    assert not np.array_equal(first.positions, second.positions)
    course = course_of(job(tmp_path)).stretches[0]
    assert [one.epoch for one in course.cursor.reads(22, 4)] == [0, 0, 1, 1]
