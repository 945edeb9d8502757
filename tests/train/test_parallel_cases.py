"""Cases from bug reports of others, on real ranks: who gets which rows, and what they count."""

import math
from itertools import chain

import numpy as np
import pytest
import torch
from parallel_training import CONFIG, Topology, decoder_of, note_samples, prepare, trained
from ranks import run_ranks
from tiny_training import batch_of, pack, rows_of, text_tokens

from kitae.backend.table import select
from kitae.data.cursor import Cursor
from kitae.data.packed import PackedData
from kitae.data.rows import IGNORED, Rows
from kitae.parallel.gradients import plain_layouts
from kitae.parallel.mesh import Mesh
from kitae.parallel.shares import Shares
from kitae.train import loop
from kitae.train.evaluate import evaluate
from kitae.train.objective import CausalLM
from kitae.train.rounding import RoundingKey, round_into
from kitae.train.schedule import Schedule

CPU = torch.device("cpu")


class Uneven:
    """Two rows: one with 10 targets, one with 90."""

    sequence_length = 100

    def read(self, samples):
        indices = [sample.number for sample in samples]
        ids = np.array([[index] * 100 for index in indices], np.int64).reshape(-1, 100)
        targets = np.full_like(ids, IGNORED)
        for row, index in zip(targets, indices, strict=True):
            row[: (10, 90)[index]] = 0
        return Rows(ids, targets, np.zeros_like(ids), np.ones_like(ids))


def mean_over_all_tokens(mesh):
    from test_step import Fixed
    from tiny_training import stepper

    made = stepper(Fixed([4.0, 1.0]), mesh=mesh)
    batch = batch_of(Uneven(), [0, 1], 1, mesh)
    return batch.target_tokens, made.update(batch, 0.0, step=1).loss


def test_the_loss_is_the_mean_over_the_tokens_of_all_ranks():
    """T17: 4.0 on 10 tokens on one rank, 1.0 on 90 on the other: 1.3 on both."""
    for tokens, loss in run_ranks(2, mean_over_all_tokens):
        assert (tokens, loss) == (100, pytest.approx(1.3, abs=1e-6))


def evaluated(mesh, folder):
    packed = PackedData.open(folder)
    objective = CausalLM(decoder_of(mesh, CONFIG))
    found = evaluate(objective, packed, micro_batch_size=2, backend=select("cpu"), mesh=mesh)
    return found.row_losses, found.row_tokens


@pytest.mark.parametrize("tp_size", [1, 2])
def test_five_rows_on_two_copies_count_once_each(tp_size, tmp_path):
    """T20: held-out rows that the copies do not share out evenly."""
    rows_of(tmp_path / "rows", 5, seed=1)
    losses, tokens = evaluated(Mesh(), tmp_path / "rows")
    assert len(losses) == 5
    for found in run_ranks(2 * tp_size, evaluated, tmp_path / "rows", tp_size=tp_size):
        assert found[0] == pytest.approx(losses, rel=1e-6)
        assert found[1].tolist() == tokens.tolist()


def test_the_rows_of_two_ranks_are_those_of_the_straight_run(tmp_path):
    """T38: text in three parts; two ranks together go through the same ids in the same order of updates."""
    parts = [text_tokens(documents, seed) for seed, documents in enumerate((9, 6, 8))]
    packed = pack(tmp_path / "train", [document for part in parts for document in part])
    rows_of(tmp_path / "heldout", 2)
    found = trained(Topology(dp=2), tmp_path, steps=5, batch=4)
    order = Cursor(len(packed), seed=7).samples(0, 20)
    assert found.samples == [sorted(order[start : start + 4]) for start in range(0, 20, 4)]
    assert len(found.samples) == 5


def test_uneven_parts_on_two_ranks_end_together(tmp_path):
    """T50: text in parts of 7, 5 and 4 rows on two ranks: equal steps, all 16 rows in each of 3 epochs."""
    parts = np.split(np.concatenate(text_tokens(40))[: 16 * 16], [7 * 16, 12 * 16])
    packed = pack(tmp_path / "train", parts)
    assert len(packed) == 16
    rows_of(tmp_path / "heldout", 2)
    found = trained(Topology(dp=2, zero1=True), tmp_path, steps=0, batch=6, training={"duration": "3 epochs"})
    assert (found.code, len(found.losses)) == (0, 8)
    assert sorted(chain.from_iterable(found.samples)) == sorted(3 * list(range(16)))


def thousand_rows(mesh, folder):
    """Rates of the updates of one epoch, through the real loop."""
    from parallel_training import job_of

    seen = note_samples()
    sections = {
        "training": {"duration": "1 epochs", "global_batch_size": 100, "micro_batch_size": 5},
        "optimizer": {"learning_rate": 0.5},
        "schedule": {"kind": "linear"},
        "parallel": Topology(dp=mesh.data.size).section(),
    }
    config = {**CONFIG, "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 8}
    rates = []
    usual = loop.Stepper.begin

    def noted(stepper, batch, rate, **options):
        rates.append(rate)
        return usual(stepper, batch, rate, **options)

    loop.Stepper.begin = noted
    loop.train(job_of(mesh, folder, config, sections))
    return rates, seen


@pytest.mark.parametrize("copies", [1, 2, 4])
def test_steps_are_updates_whatever_the_copies(copies, tmp_path):
    """T49: 1,000 rows in global batches of 100, micro-batches of 5: 10 updates; rate 0 after the tenth."""
    rows_of(tmp_path / "train", 1000, sequence_length=4)
    rows_of(tmp_path / "heldout", 2, sequence_length=4)
    answers = run_ranks(copies, thousand_rows, tmp_path)
    for rates, _ in answers:
        assert rates == pytest.approx([0.5 * (10 - update) / 10 for update in range(10)])
    assert sorted(sample for _, seen in answers for part in seen for sample in part) == list(range(1000))


def test_the_rate_after_the_last_update_is_nothing():
    """T49, its end: the decay reaches 0 at update 10, not at a micro-batch or on a rank."""
    from tiny_training import recipe

    config = recipe(schedule={"kind": "linear"}).schedule
    assert Schedule(config, 0.5, 10, 0).rate(10) == 0.0
    assert not math.isclose(Schedule(config, 0.5, 10, 0).rate(9), 0.0)


def bad_value(mesh, folder):
    """A weight that only one rank holds turns into NaN."""
    from parallel_training import job_of

    from kitae.errors import TrainingError

    sections = {"parallel": Topology(tp=2, dp=2).section()}
    job = job_of(mesh, folder, CONFIG, sections)
    if mesh.rank in (1, 3):
        with torch.no_grad():
            job.model.layers[1].mlp.down.weight[3, 5] = math.nan
    try:
        loop.train(job)
    except TrainingError as error:
        return str(error)
    return "trained"


def test_all_ranks_name_the_same_bad_weight(tmp_path):
    """A NaN on one tensor-parallel rank ends all with one message, and none of them waits for ever."""
    prepare(tmp_path)
    (message,) = set(run_ranks(4, bad_value, tmp_path, tp_size=2))
    assert "weight layers.1.mlp.down.weight is not finite" in message


def rounded_by_chance(mesh, seed):
    """The weights of all ranks after 100 updates of -6e-4, each rank rounding its rows."""
    layouts = plain_layouts(torch.nn.ParameterList([torch.ones(4096)]))
    own = Shares(layouts, mesh.data)
    weights = own.cut("0", torch.ones(4096, dtype=torch.bfloat16))
    for step in range(1, 101):
        round_into(weights, weights.float() - 6e-4, own.layouts[0], RoundingKey(seed, step))
    return mesh.data.all_gather(weights)


def test_rounding_by_chance_is_the_same_on_any_number_of_ranks():
    """T46: 4,096 weights at 1.0 and 100 x -6e-4 on 1, 2 and 4 ranks: mean 0.940 +- 0.002, the same bits."""
    alone, *others = (found for ranks in (1, 2, 4) for found in run_ranks(ranks, rounded_by_chance, 1))
    assert alone.double().mean().item() == pytest.approx(0.94, abs=0.002)
    assert all(torch.equal(alone, other) for other in others)
    assert not torch.equal(alone, run_ranks(2, rounded_by_chance, 2)[0])
