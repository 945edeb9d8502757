import math

import numpy as np
import pytest
import torch
from tiny_training import rows_of, tiny_decoder
from torch.nn import functional as F

from kitae.backend.table import select
from kitae.data.rows import IGNORED, Rows
from kitae.errors import TrainingError
from kitae.train.evaluate import Evaluation, evaluate, paired_drop
from kitae.train.objective import CausalLM, perplexity


class Sequences:
    """Rows of given lengths, padded to the longest."""

    def __init__(self, lengths):
        random = np.random.default_rng(3)
        self.sequence_length = max(lengths)
        self.texts = [random.integers(0, 61, size=length) for length in lengths]

    def __len__(self):
        return len(self.texts)

    def read(self, samples):
        indices = [sample.number for sample in samples]
        shape = (len(indices), self.sequence_length)
        ids, segments = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        targets = np.full(shape, IGNORED, np.int64)
        for place, index in enumerate(indices):
            text = self.texts[index]
            ids[place, : len(text)], segments[place, : len(text)] = text, 1
            targets[place, : len(text) - 1] = text[1:]
        positions = np.broadcast_to(np.arange(self.sequence_length), shape) * (segments > 0)
        return Rows(ids, targets, positions, segments)


def run(packed, size=2, **options):
    return evaluate(CausalLM(tiny_decoder()), packed, micro_batch_size=size, backend=select("cpu"), **options)


def test_the_loss_does_not_depend_on_the_batch_size():
    """T19: sequences of lengths 3, 9, 2, 7, 1; equal for 1, 2, 4 at a time, and the mean over 17 tokens."""
    packed = Sequences([3, 9, 2, 7, 1])
    found = [run(packed, size) for size in (1, 2, 4)]
    decoder = tiny_decoder()
    losses = []
    for text in packed.texts:
        ids = torch.from_numpy(text)[None]
        with torch.no_grad():
            logits = decoder.logits(decoder(ids, torch.arange(len(text))[None]))[0]
        losses += F.cross_entropy(logits[:-1], ids[0, 1:], reduction="none").tolist()
    assert len(losses) == 17
    for evaluation in found:
        assert evaluation.tokens == 17
        assert evaluation.row_tokens.tolist() == [2, 8, 1, 6, 0]
        assert evaluation.loss == pytest.approx(sum(losses) / 17, abs=1e-6)
        assert np.abs(evaluation.row_losses - found[0].row_losses).max() < 1e-5


def test_perplexity_and_emptiness():
    evaluation = Evaluation(np.stack((np.array([4.0, 8.0]), np.array([2.0, 4.0]))))
    assert (evaluation.loss, evaluation.tokens) == (2.0, 6)
    assert perplexity(evaluation.scores) == pytest.approx(math.exp(2))
    assert perplexity(Evaluation(np.stack((np.array([1e6]), np.array([1.0])))).scores) < math.inf
    nothing = run(Sequences([1]))
    assert (nothing.loss, nothing.tokens) == (0.0, 0)


def test_only_the_first_rows(tmp_path):
    packed = rows_of(tmp_path / "p", 7)
    everything, some = run(packed), run(packed, max_rows=3)
    assert len(everything.row_losses) == 7
    assert some.row_losses == pytest.approx(everything.row_losses[:3], rel=1e-6)
    assert len(run(packed, max_rows=100).row_losses) == 7


def test_nothing_is_trained_and_no_graph_is_kept(tmp_path):
    decoder = tiny_decoder()
    before = [one.detach().clone() for one in decoder.parameters()]
    evaluate(CausalLM(decoder), rows_of(tmp_path / "p", 4), micro_batch_size=2, backend=select("cpu"))
    assert all(torch.equal(one, two) for one, two in zip(before, decoder.parameters(), strict=True))
    assert all(one.grad is None for one in decoder.parameters())


def test_a_stop_is_looked_for_before_each_micro_batch(tmp_path):
    calls = []
    run(rows_of(tmp_path / "p", 5), check=lambda: calls.append(1))
    assert len(calls) == 3


def test_a_bad_value_names_its_place(tmp_path):
    decoder = tiny_decoder()
    with torch.no_grad():
        decoder.layers[1].mlp.down.weight[0, 0] = math.nan
    with pytest.raises(
        TrainingError, match=r"held-out evaluation: weight layers\.1\.mlp\.down\.weight is not"
    ):
        evaluate(CausalLM(decoder), rows_of(tmp_path / "p", 2), micro_batch_size=2, backend=select("cpu"))


def test_paired_drop():
    before = Evaluation(np.stack((np.array([10.0, 20.0, 9.0, 0.0]), np.array([10.0, 10.0, 5.0, 0.0]))))
    after = Evaluation(np.stack((np.array([8.0, 21.0, 4.0, 0.0]), np.array([10.0, 10.0, 5.0, 0.0]))))
    drop = paired_drop(before, after)
    assert (drop.rows, drop.rows_improved) == (3, 2)
    assert drop.mean_drop == pytest.approx(before.loss - after.loss) == pytest.approx(6 / 25)
    deviations = np.array([10, 10, 5]) * (np.array([0.2, -0.1, 1.0]) - 6 / 25)
    assert drop.standard_error == pytest.approx(np.sqrt((deviations**2).sum()) / 25 * np.sqrt(3 / 2))


def test_paired_drop_of_equal_rows_is_the_usual_standard_error():
    random = np.random.default_rng(0)
    first, second = random.random(50) * 10, random.random(50) * 10
    tokens = np.full(50, 8.0)
    drop = paired_drop(Evaluation(np.stack((first, tokens))), Evaluation(np.stack((second, tokens))))
    usual = ((first - second) / 8).std(ddof=1) / math.sqrt(50)
    assert drop.standard_error == pytest.approx(usual)


def test_paired_drop_of_one_row_has_no_standard_error():
    one = Evaluation(np.stack((np.array([3.0]), np.array([2.0]))))
    assert paired_drop(one, one).standard_error is None
