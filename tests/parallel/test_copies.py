"""A bit that differs between ranks which should hold the same is found, on all of them."""

import pytest
import torch
from parallel_cases import decoder_layouts_of
from ranks import run_ranks

from kitae.backend.group import ALONE
from kitae.errors import TrainingError
from kitae.parallel import copies
from kitae.parallel.copies import check_copies
from kitae.parallel.mesh import Mesh
from kitae.parallel.shares import Shares


def shares_of(mesh, sharded):
    layouts = decoder_layouts_of(mesh.tensor.size, mesh.tensor.rank)
    return Shares(layouts, mesh.data if sharded else ALONE)


def checked(mesh, sharded, dtype, damage):
    """What the check says when one rank has flipped the last bit of one value."""
    shares = shares_of(mesh, sharded)
    tensors = {layout.name: torch.ones(layout.shape, dtype=dtype) for layout in shares.layouts}
    rank, name, row = damage
    if mesh.rank == rank:
        tensors[name][row].view(torch.int16 if dtype == torch.bfloat16 else torch.int32)[0] ^= 1
    try:
        check_copies(tensors, shares.layouts, mesh, sharded)
    except TrainingError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sharded", [False, True])
def test_equal_copies_pass(sharded, dtype):
    assert set(run_ranks(8, checked, sharded, dtype, (-1, "", 0), tp_size=4)) == {""}


@pytest.mark.parametrize(
    ("damage", "tensor"),
    [
        ((5, "norm", slice(None)), "model.norm.weight"),
        ((6, "qkv", -1), "v_proj.weight"),
    ],
)
def test_unequal_copies_are_an_error(damage, tensor):
    """T04: KV heads that two ranks hold, and norms that all hold; the second with shares of rows."""
    for says in run_ranks(8, checked, True, torch.float32, damage, tp_size=4):
        assert f"the same part of {tensor}" in says


def test_copies_of_the_model_are_compared_where_each_has_all_rows():
    for says in run_ranks(2, checked, False, torch.float32, (1, "qkv", 0)):
        assert "the same part of q_proj.weight" in says


def test_one_process_has_nothing_to_compare(monkeypatch):
    """Nor does it read its weights for that, which would take a second of each save."""
    monkeypatch.setattr(copies, "_INTEGERS", {})
    assert checked(Mesh(), False, torch.float32, (0, "qkv", 0)) == ""


def sums_before_they_are_compared(mesh):
    """What is given to who may have to end a graph."""
    shares, seen = shares_of(mesh, False), []
    tensors = {layout.name: torch.ones(layout.shape) for layout in shares.layouts}
    check_copies(tensors, shares.layouts, mesh, False, seen.append)
    return [[one.dtype for one in made] for made in seen]


def test_sums_are_given_out_once_before_they_are_looked_at():
    assert run_ranks(2, sums_before_they_are_compared, tp_size=1) == [[[torch.int64]]] * 2
    assert sums_before_they_are_compared(Mesh()) == []
