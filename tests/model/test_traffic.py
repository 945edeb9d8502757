"""Collectives: the closed form is what the meter of real processes counts, one by one."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from cut_decoders import batch, decoder_of, loss_of
from ranks import run_ranks

from kitae.backend.group import ALONE, Call
from kitae.parallel.data_parallel import DataParallel
from kitae.parallel.gradients import global_norm, sum_copies
from kitae.parallel.grid import partitions
from kitae.parallel.region import region_of
from kitae.parallel.shares import Shares
from kitae.parallel.traffic import Spread, Work, update_traffic, update_travels
from kitae.recipe.training import OptimizerConfig
from kitae.train.loss import IGNORE
from kitae.train.optimizer import OPTIMIZERS
from kitae.train.precision import PRECISIONS

MICRO_BATCHES = 2
BUCKET_BYTES, CHUNK_TOKENS = 3000, 8
WIDTHS = {"fp32": (4, 4, 4), "bf16": (2, 2, 2), "autocast": (4, 2, 4)}
"""Bytes of hidden states, of what products give, and of parameters."""


def metered(mesh, case, precision, sequence_parallel, recompute, zero1, wire_dtype):
    """One update's collectives and bytes by kind, as metered and of the closed form."""
    decoder = decoder_of(case, region_of(mesh.tensor, sequence_parallel))
    decoder.recompute = recompute
    shares = Shares(decoder.layouts, mesh.data if zero1 else ALONE)
    weights = PRECISIONS[precision](decoder, shares)
    optimizer = OPTIMIZERS["adamw"](
        weights, (), OptimizerConfig(), fused=False, seed=0, shares=shares, mesh=mesh
    )
    data = DataParallel(
        dict(decoder.named_parameters()), shares, mesh.data, wire_dtype=wire_dtype, bucket_bytes=BUCKET_BYTES
    )
    mesh.meter.taken.clear()
    for _ in range(MICRO_BATCHES):
        with weights.forward_context():
            loss = loss_of(decoder)
        loss.backward()
    gradients = data.finish(weights.sums())
    sum_copies(gradients, shares.layouts, mesh, sequence_parallel)
    global_norm(gradients, shares.layouts, mesh, sharded=shares.group.size > 1)
    optimizer.step(0.1, gradients)
    weights.publish()
    data.gather()
    ids, _, _, targets = batch()
    hidden_bytes, product_bytes, parameter_bytes = WIDTHS[precision]
    spread = Spread(
        tensor_parallel_size=mesh.tensor.size,
        data_parallel_size=mesh.data.size,
        data_parallel_rank=mesh.data.rank,
        sequence_parallel=sequence_parallel,
        zero1=zero1,
        wire_bytes=wire_dtype.itemsize,
        bucket_bytes=BUCKET_BYTES,
    )
    work = Work(
        hidden_size=decoder.config.hidden_size,
        num_layers=decoder.config.num_layers,
        tokens=[ids.numel()] * MICRO_BATCHES,
        targets=int((targets != IGNORE).sum()) * MICRO_BATCHES,
        hidden_bytes=hidden_bytes,
        product_bytes=product_bytes,
        parameter_bytes=parameter_bytes,
        recompute_layers=recompute == "full",
        chunk_tokens=CHUNK_TOKENS,
    )
    taken, bytes_in = dict(mesh.meter.taken), dict(mesh.meter.bytes_in)
    travels = update_travels(decoder.layouts, spread, work)
    expected = Counter()
    for travel, count in travels.items():
        groups = travel.partition(partitions(mesh.control.size, mesh.tensor.size))
        own = next(group for group in groups if mesh.rank in group)
        expected[Call(travel.kind, own, travel.bytes_in)] += count
    return (taken, bytes_in), (dict(expected), dict(update_traffic(decoder.layouts, spread, work)))


FP32, BF16 = torch.float32, torch.bfloat16
CUT = [
    ("qwen3", "fp32", False, "none", False, FP32),
    ("llama-biases", "fp32", True, "none", False, FP32),
    ("qwen3-tied-window", "bf16", True, "selective", False, FP32),
    ("qwen3", "fp32", False, "full", False, FP32),
    ("qwen3", "bf16", True, "full", False, FP32),
    ("llama-biases", "autocast", True, "none", False, FP32),
    ("llama-tied", "autocast", False, "full", False, FP32),
]
BOTH = [
    ("qwen3", "fp32", True, "none", True, FP32),
    ("llama-tied", "bf16", False, "none", True, BF16),
    ("llama-biases", "bf16", True, "selective", False, BF16),
    ("qwen2-tied", "autocast", True, "full", True, FP32),
]
COPIES = [
    ("qwen3", "fp32", False, "none", True, FP32),
    ("llama-biases", "bf16", False, "none", True, BF16),
    ("llama-tied", "fp32", False, "none", False, FP32),
    ("qwen2-tied", "fp32", False, "none", False, BF16),
]


def all_metered(mesh, cases):
    return [metered(mesh, *case) for case in cases]


@pytest.mark.parametrize(
    ("world", "tp_size", "cases"),
    [(4, 4, CUT), (4, 2, BOTH), (3, 1, COPIES), (1, 1, COPIES[:1])],
    ids=["tp4", "tp2-dp2", "dp3", "alone"],
)
def test_the_closed_form_is_what_is_metered(world, tp_size, cases):
    """Tp 4 with 2 KV heads, tp2 x dp2, dp 3 with uneven shares; every precision, recompute and wire."""
    for rank in run_ranks(world, all_metered, cases, tp_size=tp_size):
        for case, (found, expected) in zip(cases, rank, strict=True):
            assert found == expected, case
