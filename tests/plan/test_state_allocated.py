"""The state that a plan names is what tensors take, to the byte: tp 1-8 x 1-4 copies x every precision."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch
from measured_update import work_for

from kitae import catalog
from kitae.backend.group import ALONE, Group
from kitae.model.architecture import architecture_of
from kitae.model.memory import LOCAL_BYTES
from kitae.parallel.mesh import Mesh
from kitae.parallel.region import region_of
from kitae.parallel.shares import Shares
from kitae.plan.memory import memory_of
from kitae.plan.work import Work
from kitae.recipe.training import OptimizerConfig
from kitae.train.optimizer import MOMENTS, OPTIMIZERS
from kitae.train.precision import PRECISIONS

SIZES, COPIES = range(1, 9), range(1, 5)


def work_of_cut(size: int, precision: str) -> Work:
    """A decoder of one layer that `size` processes can share; its vocabulary of 99 is padded."""
    config = {
        **catalog.preset("llama-tiny").config,
        "vocab_size": 99,
        "hidden_size": 8 * size,
        "intermediate_size": 10 * size,
        "num_hidden_layers": 1,
        "num_attention_heads": 2 * size,
        "num_key_value_heads": size,
    }
    return replace(work_for(config, precision=precision, micro_batch_size=4), tensor_parallel=size)


def bytes_of(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """By storage: views of one tensor count once, and whole."""
    storages = [one.untyped_storage() for one in tensors]
    return {one.data_ptr(): one.nbytes() for one in storages if one.nbytes()}


def allocated(work: Work, rank: int, copy: int) -> dict[str, int]:
    """Bytes by kind of one process; its peers are not there, and nothing is exchanged."""
    tensor = Group(tuple(range(work.tensor_parallel)), rank) if work.tensor_parallel > 1 else ALONE
    copies = Group(tuple(range(work.data_parallel)), copy) if work.zero1 else ALONE
    build = architecture_of(work.config).build
    model = build(
        work.config, tied=work.tied, dtype=torch.float32, device="cpu", region=region_of(tensor, False)
    )
    shares = Shares(model.layouts, copies)
    weights = PRECISIONS[work.precision](model, shares)
    optimizer = OPTIMIZERS["adamw"](
        weights, (), OptimizerConfig(), fused=False, seed=0, shares=shares, mesh=Mesh()
    )
    sum(one.sum() for one in model.parameters()).backward()  # a gradient for each, without a forward pass
    parameters = bytes_of(model.parameters())
    masters = {
        place: size for place, size in bytes_of(weights.masters.values()).items() if place not in parameters
    }
    found = {
        "parameters": sum(parameters.values()),
        "gradients": sum(bytes_of(weights.sums().values()).values()),
        "master": sum(masters.values()),
        "optimizer": sum(sum(bytes_of(optimizer.moments(kind).values()).values()) for kind in MOMENTS),
    }
    return {kind: size for kind, size in found.items() if size}


@pytest.mark.parametrize("precision", LOCAL_BYTES)
@pytest.mark.parametrize("size", SIZES)
def test_the_planned_state_is_what_is_allocated(size: int, precision: str):
    for copies in COPIES:
        for zero1 in (False, True) if copies > 1 else (False,):
            work = replace(work_of_cut(size, precision), data_parallel=copies, zero1=zero1)
            assert allocated(work, 0, 0) == memory_of(work).state


@pytest.mark.parametrize("precision", LOCAL_BYTES)
def test_no_other_process_holds_more(precision: str):
    work = replace(work_of_cut(4, precision), data_parallel=3, zero1=True)
    most = memory_of(work).state
    for rank, copy in ((1, 0), (3, 0), (0, 2), (3, 2)):
        assert all(size <= most[kind] for kind, size in allocated(work, rank, copy).items())
