"""Bytes that training holds: the closed form is what real tensors take."""

from __future__ import annotations

from itertools import product

import pytest
from cut_decoders import decoder_of, loss_of
from ranks import run_ranks
from tiny_decoders import reference, same_in_kitae

from kitae.backend.group import ALONE
from kitae.model.layouts import decoder_layouts
from kitae.model.memory import count_parameters, state_bytes
from kitae.parallel.mesh import Mesh
from kitae.parallel.region import region_of
from kitae.parallel.shares import Shares
from kitae.recipe.training import OptimizerConfig
from kitae.train.optimizer import MOMENTS, OPTIMIZERS
from kitae.train.precision import PRECISIONS


def storages(tensors):
    """Bytes by storage: views of one tensor count once, and whole."""
    return {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}


def in_real_tensors(mesh, precision, zero1, optimizer="adamw"):
    """Bytes by kind after one update, and what the closed form says."""
    decoder = decoder_of("qwen3-tied-window", region_of(mesh.tensor, False))
    shares = Shares(decoder.layouts, mesh.data if zero1 else ALONE)
    weights = PRECISIONS[precision](decoder, shares)
    made = OPTIMIZERS[optimizer](
        weights, (), OptimizerConfig(), fused=False, seed=0, shares=shares, mesh=mesh
    )
    with weights.forward_context():
        loss = loss_of(decoder)
    loss.backward()
    made.step(0.1, {name: shares.cut(name, one) for name, one in weights.sums().items()})
    parameters, masters = storages(decoder.parameters()), storages(weights.masters.values())
    own = sum(size for place, size in masters.items() if place not in parameters and size)
    found = {
        "parameters": sum(parameters.values()),
        "gradients": sum(storages(weights.sums().values()).values()),
        "optimizer": sum(sum(storages(made.moments(kind).values()).values()) for kind in MOMENTS),
        **({"master": own} if own else {}),
    }
    return found, state_bytes(decoder.layouts, shares.layouts, precision)


def every_precision(mesh):
    return [in_real_tensors(mesh, *case) for case in product(PRECISIONS, (True, False))]


@pytest.mark.parametrize(("world", "tp_size"), [(4, 2), (3, 1)])
def test_bytes_are_those_of_real_tensors(world, tp_size):
    """For every precision, with and without ZeRO-1, on tp2 x dp2 and on dp3 where shares are uneven."""
    for rank in run_ranks(world, every_precision, tp_size=tp_size):
        for found, expected in rank:
            assert found == expected


def test_bytes_are_those_of_real_tensors_in_one_process():
    for optimizer in OPTIMIZERS:
        for precision in PRECISIONS:
            found, expected = in_real_tensors(Mesh(), precision, True, optimizer)
            assert found == expected


def test_bytes_of_one_process():
    decoder = same_in_kitae(reference("qwen3"))
    count = sum(one.numel() for one in decoder.parameters())
    kinds = {precision: state_bytes(decoder.layouts, decoder.layouts, precision) for precision in PRECISIONS}
    assert kinds == {
        "fp32": {"parameters": 4 * count, "gradients": 4 * count, "optimizer": 8 * count},
        "bf16": {
            "parameters": 2 * count,
            "gradients": 4 * count,
            "master": 4 * count,
            "optimizer": 8 * count,
        },
        "bf16-sr": {"parameters": 2 * count, "gradients": 4 * count, "optimizer": 8 * count},
        "autocast": {"parameters": 4 * count, "gradients": 4 * count, "optimizer": 8 * count},
    }


def test_a_tied_head_counts_once_and_padding_counts():
    config = same_in_kitae(reference("llama2")).config
    one, tied = (count_parameters(decoder_layouts(config, which)(1, 0)) for which in (False, True))
    assert one - tied == 99 * 32
    padded = sum(count_parameters(decoder_layouts(config, True)(4, rank)) for rank in range(4))
    norms = 7 * 32
    assert padded == tied + 1 * 32 + 3 * norms
