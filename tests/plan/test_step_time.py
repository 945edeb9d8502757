"""Seconds of an update: by hand, and against what was published."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measured_update import work_for

from kitae import catalog
from kitae.model.flops import encoder_train_flops_per_token, train_flops_per_token
from kitae.plan.efficiency import Efficiency
from kitae.plan.machine import Machine, rented
from kitae.plan.published import published_rows
from kitae.plan.step_time import flops_by_kind, step_time

DECODER = dict(catalog.preset("llama-10m").config)
ROWS = {row.name: row for row in published_rows()}
PERFECT = Efficiency(1.0, 1.0, 1.0, 0.25, 0.5, "")
MACHINE = Machine("m", 1, 1, 1 << 30, 1 << 30, False, {"fp32": 1e12, "bf16": 4e12}, 1e11, 1e9, 1e9, 1e-3)


@pytest.mark.parametrize("name", ROWS)
def test_every_published_row_lies_in_the_interval(name: str):
    row = ROWS[name]
    low, high = step_time(row.work, row.machine).interval
    assert low <= row.work.global_rows / row.rows_per_s <= high


@pytest.mark.parametrize(("row", "seconds"), [("Llama 2 7B, 16 nodes", 1.2), ("Llama 2 70B, 32 nodes", 11.2)])
@pytest.mark.parametrize("cut", [4, 8])
def test_what_another_trainer_had_on_trainium2_lies_in_the_wide_interval(row: str, seconds: float, cut: int):
    """AXLearn, 64 machines of 16 chips; 4.19M tokens an update are inferred, and its cut was another."""
    work = replace(ROWS[row].work, backend="neuron", scores="fused", pipeline=1)
    work = replace(work, tensor_parallel=cut, data_parallel=64 * 64 // cut)
    low, high = step_time(work, rented(catalog.instance("trn2.48xlarge"), 64)).interval
    assert low < seconds < high


def test_flops_are_those_that_utilisation_is_measured_by():
    decoder = work_for(DECODER, length=128, micro_batch_size=8)
    assert sum(flops_by_kind(decoder).values()) == decoder.tokens * train_flops_per_token(decoder.config, 128)
    encoder = work_for(
        dict(catalog.preset("bert-mini").config), objective="masked-lm", length=128, micro_batch_size=8
    )
    per_token = encoder_train_flops_per_token(encoder.config, 128, encoder.predictions)
    assert sum(flops_by_kind(encoder).values()) == pytest.approx(encoder.tokens * per_token, rel=1e-4)


def test_whole_blocks_again_are_a_third_more():
    works = [work_for(DECODER, recompute=mode, micro_batch_size=8) for mode in ("selective", "full")]
    once, again = map(flops_by_kind, works)
    assert again["mlp"] == once["mlp"] * 8 / 6
    assert again["head"] == once["head"]


def test_one_process_by_hand():
    """1 TFLOP/s, 100 GB/s: FLOPs / peak; 20 bytes a weight and micro-batch, 28 in the update."""
    work = work_for(DECODER, global_batch_size=16, micro_batch_size=8)
    found = step_time(work, MACHINE, PERFECT)
    # 16,384 x 256, and 8 layers of 256 x 24 x 32, 3 x 256 x 704 and two norms, and the last norm.
    weights = 16_384 * 256 + 8 * (256 * 24 * 32 + 3 * 256 * 704 + 512) + 256
    assert sum(found.products.values()) == pytest.approx(2 * sum(flops_by_kind(work).values()) / 1e12)
    assert found.weights == pytest.approx(2 * weights * 20 / 1e11, rel=1e-9)
    assert found.optimizer == pytest.approx(weights * 28 / 1e11, rel=1e-9)
    assert (found.tensor_parallel, found.copies, found.idle, found.host) == (0, 0, 0, 0.25)
    assert found.interval == (found.seconds / 1.5, found.seconds * 1.5)


def test_more_nodes_are_faster_but_not_in_proportion():
    row = ROWS["Llama 3.1 8B, 32 nodes"]
    few = ROWS["Llama 3.1 8B, 4 nodes (second step)"]
    slow, fast = few.predicted(), row.predicted()
    assert 0.9 * 8 * slow < fast < 8 * slow


def test_a_cut_over_nodes_waits_for_the_network():
    inside = ROWS["Llama 3.1 8B, 32 nodes"]
    small = rented(catalog.instance("trn1.2xlarge"), 512)
    within = step_time(inside.work, inside.machine).tensor_parallel
    assert step_time(inside.work, small).tensor_parallel > 5 * within
