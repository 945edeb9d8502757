import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_training import job, pack, rows_of, text_tokens, tiny_decoder

from kitae.backend.cpu import CpuBackend
from kitae.checkpoint.store import CheckpointStore
from kitae.data.cursor import Cursor
from kitae.errors import RecipeError, StoppedError, StorageError, TrainingError
from kitae.train.loop import train
from kitae.train.metrics import MetricsLog, read_records


def training(duration="4 steps", **others):
    return {"duration": duration, "global_batch_size": 4, "micro_batch_size": 2, **others}


def records(folder, kind=None):
    found = read_records(folder / "run" / "metrics.jsonl")
    return [one for one in found if kind is None or one["kind"] == kind]


def losses(folder):
    return [(one["kind"], one["step"], one["loss"]) for one in records(folder) if one["kind"] != "start"]


def test_a_run_from_beginning_to_end(tmp_path):
    lines = []
    result = train(replace(job(tmp_path, training=training()), report=lines.append))
    assert (result.steps, result.resumed_from, result.already_complete) == (4, None, False)
    assert result.checkpoint == tmp_path / "run" / "checkpoints" / "step-00000004"
    assert [one["kind"] for one in records(tmp_path)] == ["start", "evaluation", *["train"] * 4, "evaluation"]
    assert [one["first_step"] for one in records(tmp_path, "train")] == [True, False, False, False]
    last = records(tmp_path, "train")[-1]
    assert (last["consumed_samples"], last["total_padded_tokens"], last["padded_tokens"]) == (16, 256, 64)
    assert last["tokens_per_s"] == pytest.approx(64 / last["step_seconds"])
    start = records(tmp_path, "start")[0]
    assert last["utilisation"] == pytest.approx(
        start["flops_per_token"] * last["tokens_per_s"] / last["peak_flops"]
    )
    assert "peak_flops" in start["utilisation_formula"]
    assert any(line.startswith("step 4/4  loss ") for line in lines)
    assert any(line.startswith("held-out loss ") for line in lines)


def test_a_peak_that_an_update_beats_is_measured_again(tmp_path, monkeypatch):
    """Measured on a busy machine, the first peak would give a share above 1."""
    peaks = iter([1.0, 1e15])
    monkeypatch.setattr(CpuBackend, "peak_flops", lambda self, dtype: next(peaks))
    train(job(tmp_path, training=training()))
    updates = records(tmp_path, "train")
    assert {one["peak_flops"] for one in updates} == {1e15}
    assert all(0 < one["utilisation"] < 1 for one in updates)


def test_results(tmp_path):
    result = train(job(tmp_path, training=training()))
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results == result.results
    evaluations = [one["loss"] for one in records(tmp_path, "evaluation")]
    assert [results["heldout"]["loss_before"], results["heldout"]["loss_after"]] == evaluations
    assert results["heldout"]["mean_drop"] == pytest.approx(evaluations[0] - evaluations[1])
    assert (results["steps"], results["padded_tokens"], results["attempts"], results["seed"]) == (
        4,
        256,
        1,
        7,
    )
    assert (results["global_batch_size"], results["accumulation_steps"], results["data_key"]) == (
        4,
        2,
        "data",
    )
    assert results["model"]["parameters"] == sum(one.numel() for one in tiny_decoder().parameters())
    assert results["versions"]["torch"] == torch.__version__
    steady = records(tmp_path, "train")[1:]
    seconds = sum(one["step_seconds"] for one in steady)
    assert results["tokens_per_s"] == pytest.approx(3 * 64 / seconds)


def test_a_complete_run_returns_at_once(tmp_path):
    first = train(job(tmp_path, training=training()))
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    again = train(replace(job(tmp_path, training=training()), model=None))
    assert (again.already_complete, again.resumed_from, again.steps) == (True, 4, 4)
    assert (again.results, again.checkpoint) == (first.results, first.checkpoint)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_lost_results_are_made_again_without_training(tmp_path):
    first = train(job(tmp_path, training=training()))
    (tmp_path / "run" / "results.json").write_text("{")
    again = train(job(tmp_path, training=training()))
    assert not again.already_complete
    assert again.results == {**first.results, "attempts": 2}
    assert len(records(tmp_path, "train")) == 4


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_same_run_twice_is_the_same_to_the_bit(tmp_path, precision):
    for name in ("one", "two"):
        train(job(tmp_path / name, training=training("6 steps", precision=precision)))
    assert losses(tmp_path / "one") == losses(tmp_path / "two")


def test_another_seed_is_another_order(tmp_path):
    orders = [Cursor(24, seed).samples(0, 24) for seed in (7, 8)]
    assert orders[0] != orders[1]
    made = job(tmp_path / "two", training=training())
    train(job(tmp_path / "one", training=training()))
    other = replace(made.phases[0], recipe=made.recipe.model_copy(update={"seed": 8}))
    train(replace(made, phases=(other,)))
    assert losses(tmp_path / "one")[1] != losses(tmp_path / "two")[1]


def test_every_row_is_seen_once_an_epoch_and_the_last_window_is_smaller(tmp_path):
    """T18 in the loop: 10 rows, 1 at a time, 4 accumulation steps: 3 updates of 4, 4 and 2 rows."""
    data = rows_of(tmp_path / "ten", 10)
    seen, usual = [], data.rows
    data.rows = lambda indices: seen.append(list(indices)) or usual(indices)
    made = job(tmp_path, train=data, training=training("1 epochs", micro_batch_size=1))
    assert train(made).steps == 3
    assert [len(part) for part in seen] == [4, 4, 2]
    assert sorted(row for part in seen for row in part) == list(range(10))
    assert [one["padded_tokens"] for one in records(tmp_path, "train")] == [64, 64, 32]


def test_evaluation_and_checkpoints_come_as_often_as_asked(tmp_path):
    sections = {"evaluation": {"every": "3 steps"}, "checkpoint": {"every": "2 steps"}}
    train(job(tmp_path, training=training("7 steps"), **sections))
    assert [one["step"] for one in records(tmp_path, "evaluation")] == [0, 3, 6, 7]
    assert CheckpointStore(tmp_path / "run" / "checkpoints", keep=2).steps() == [6, 7]


def test_the_best_is_kept_and_known(tmp_path):
    """A rate that ruins the model: the best checkpoint is an early one, and evaluations fall on saves."""
    sections = {"optimizer": {"learning_rate": 0.5}, "checkpoint": {"every": "2 steps", "keep_best": True}}
    made = job(tmp_path, training=training("8 steps"), **sections)
    train(replace(made, store=CheckpointStore(tmp_path / "run" / "checkpoints", keep=1, keep_best=True)))
    evaluations = {one["step"]: one["loss"] for one in records(tmp_path, "evaluation")}
    assert list(evaluations) == [0, 2, 4, 6, 8]
    saved = {step: loss for step, loss in evaluations.items() if step}
    best = min(saved, key=saved.get)
    store = CheckpointStore(tmp_path / "run" / "checkpoints", keep=1, keep_best=True)
    assert set(store.steps()) == {best, 8}
    assert store.latest().state["best_heldout_loss"] == min(evaluations.values())


def test_without_heldout_text_nothing_is_evaluated(tmp_path):
    made = job(tmp_path, training=training())
    result = train(replace(made, phases=(replace(made.phases[0], heldout=None),)))
    assert result.results["heldout"] is None
    assert not records(tmp_path, "evaluation")


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    train(job(tmp_path, training=training()))
    with pytest.raises(RecipeError, match=r"step-00000004 is of a run with other settings.*another name"):
        train(replace(job(tmp_path, training=training()), recipe_hash="other"))


def test_a_bad_value_stops_the_run_and_keeps_what_there_is(tmp_path):
    made = job(tmp_path, training=training("9 steps"), checkpoint={"every": "2 steps"})
    calls = []

    def spoil(module, inputs, output):
        calls.append(1)
        return output * float("nan") if len(calls) > 16 else output

    made.model.layers[0].register_forward_hook(spoil)  # 3 held-out batches, then 2 an update
    with pytest.raises(
        TrainingError, match=r"step 7, micro-batch 0, rows \d+, \d+: the output of layers\.0 is"
    ):
        train(made)
    assert [one["step"] for one in records(tmp_path, "train")] == [1, 2, 3, 4, 5, 6]
    assert CheckpointStore(tmp_path / "run" / "checkpoints", keep=2).latest().step == 6


def test_no_place_for_a_file_is_a_storage_error(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "evaluations").write_text("in the way")
    with pytest.raises(StorageError, match="evaluations"):
        train(job(tmp_path, training=training()))


def test_the_rate_follows_the_schedule(tmp_path):
    sections = {"optimizer": {"learning_rate": 0.01}, "schedule": {"kind": "linear", "warmup": "2 steps"}}
    train(job(tmp_path, training=training("6 steps"), **sections))
    rates = [one["learning_rate"] for one in records(tmp_path, "train")]
    assert rates == pytest.approx([0.005, 0.01, 0.01, 0.0075, 0.005, 0.0025])


def test_tensorboard_lies_beside_the_metrics(tmp_path):
    pytest.importorskip("tensorboard")
    train(job(tmp_path, training=training(), tracking={"trackers": ["tensorboard"]}))
    assert list((tmp_path / "run" / "tensorboard").iterdir())


def test_real_text_teaches_and_shuffled_text_does_harm(tmp_path):
    """The control: on a model that knows the text a little, the same steps on shuffled tokens do harm."""
    heldout = pack(tmp_path / "heldout", text_tokens(40, seed=5), 32)
    real = text_tokens(150, seed=6)
    order = np.random.default_rng(0)
    everything = np.concatenate(real)
    order.shuffle(everything)
    shuffled = np.split(everything, np.cumsum([len(one) for one in real])[:-1])
    sections = {"optimizer": {"learning_rate": 0.01}, "schedule": {"kind": "constant"}}
    known = job(
        tmp_path / "known", train=pack(tmp_path / "k", text_tokens(150, seed=4), 32), heldout=heldout,
        training=training("40 steps"), **sections,
    )  # fmt: skip
    start = train(known).results["heldout"]
    assert start["mean_drop"] > 0.3
    state = {name: one.detach().clone() for name, one in known.model.named_parameters()}
    drops = {}
    for name, documents in (("real", real), ("shuffled", shuffled)):
        data = pack(tmp_path / f"{name}-data", documents, 32)
        made = job(tmp_path / name, train=data, heldout=heldout, training=training("60 steps"), **sections)
        made.model.load_state_dict(state)
        drops[name] = train(made).results["heldout"]
    assert drops["real"]["loss_before"] == drops["shuffled"]["loss_before"] == start["loss_after"]
    assert drops["real"]["mean_drop"] > 3 * drops["real"]["standard_error"] > 0
    assert drops["shuffled"]["mean_drop"] < -3 * drops["shuffled"]["standard_error"] < 0


def test_metrics_lost_in_a_power_cut_do_not_make_a_finished_run_unfinished(tmp_path):
    sections = {"training": training()}
    train(job(tmp_path, **sections))
    metrics = tmp_path / "run" / "metrics.jsonl"
    kept = [line for line in metrics.read_text().splitlines(True) if json.loads(line)["step"] < 4]
    metrics.write_text("".join(kept))
    (tmp_path / "run" / "results.json").unlink()
    assert train(job(tmp_path, **sections)).results["steps"] == 4
    assert train(job(tmp_path, **sections)).already_complete


def test_the_metrics_are_on_the_disk_before_the_checkpoint_of_their_step(tmp_path, monkeypatch):
    events = []
    sync, save = MetricsLog.sync, CheckpointStore.save

    def noted_sync(self):
        sync(self)
        events.append(("metrics", records(tmp_path)[-1]["step"]))

    def noted_save(self, step, *given, **named):
        events.append(("checkpoint", step))
        return save(self, step, *given, **named)

    monkeypatch.setattr(MetricsLog, "sync", noted_sync)
    monkeypatch.setattr(CheckpointStore, "save", noted_save)
    train(job(tmp_path, training=training(), checkpoint={"every": "2 steps"}))
    assert events == [("metrics", 2), ("checkpoint", 2), ("metrics", 4), ("checkpoint", 4)]


def test_a_checkpoint_saved_on_a_signal_keeps_the_loss_that_was_just_measured(tmp_path):
    def stop(line):
        if line.startswith("held-out loss") and "after step 2" in line:
            os.kill(os.getpid(), signal.SIGTERM)

    store = CheckpointStore(tmp_path / "run" / "checkpoints", keep=1, keep_best=True)
    sections = {"training": training(), "checkpoint": {"every": "2 steps", "keep_best": True}}
    with pytest.raises(StoppedError, match="after step 2"):
        train(replace(job(tmp_path, **sections), store=store, report=stop))
    measured = {one["step"]: one["loss"] for one in records(tmp_path, "evaluation")}
    assert store.latest().manifest.heldout_loss == measured[2]
