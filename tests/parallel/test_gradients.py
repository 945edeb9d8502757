"""Norms and sums of gradients over ranks that hold the same pieces, in real processes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import run_ranks

from kitae.backend.group import ALONE
from kitae.parallel import cuts
from kitae.parallel.assembly import assemble, pieces_of
from kitae.parallel.cuts import Place
from kitae.parallel.gradients import global_norm, plain_layouts, sum_copies
from kitae.parallel.layout import ParameterLayout
from kitae.parallel.mesh import Mesh
from kitae.parallel.shares import Shares

HIDDEN, DIM = 6, 2
FULL = {
    "norm": (HIDDEN,),
    "q_norm": (DIM,),
    "q": (8 * DIM, HIDDEN),
    "k": (2 * DIM, HIDDEN),
    "v": (2 * DIM, HIDDEN),
    "down": (HIDDEN, 8),
    "embed": (9, HIDDEN),
}


def layouts_of(tp_size, tp_rank):
    """Two ranks hold each KV head, if there are two."""
    place, kv = Place(tp_size, tp_rank), max(1, tp_size // 2)
    qkv = (
        cuts.query_heads("q", FULL["q"], 8, place),
        cuts.kv_heads("k", FULL["k"], kv, place),
        cuts.kv_heads("v", FULL["v"], kv, place),
    )
    return [
        ParameterLayout("embed", (cuts.vocabulary("embed", FULL["embed"], place),)),
        ParameterLayout("norm", (cuts.replicated("norm", FULL["norm"], place),), token_wise=True),
        ParameterLayout("qkv", qkv),
        ParameterLayout("q_norm", (cuts.replicated("q_norm", FULL["q_norm"], place),)),
        ParameterLayout("down", (cuts.row("down", FULL["down"], place),)),
    ]


def full_gradients(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randint(-9, 9, shape, generator=generator).float() for name, shape in FULL.items()}


def local(layouts, full):
    return {
        one.name: assemble(one, lambda name, box: full[name][box.slices()], torch.float32) for one in layouts
    }


def three_and_four(mesh):
    """Every rank holds the replicated norm's gradient and a quarter of the other's."""
    place = Place(4, mesh.tensor.rank)
    layouts = [
        ParameterLayout("norm", (cuts.replicated("norm", (1,), place),)),
        ParameterLayout("weight", (cuts.column("weight", (4, 4), place),)),
    ]
    gradients = {"norm": torch.tensor([3.0]), "weight": torch.ones(1, 4)}
    return global_norm(gradients, layouts, mesh, sharded=False).item()


def test_what_is_replicated_counts_once():
    """T21: replicated 3 and sharded 4 on tp 4 give 5.0, not 7.211."""
    found = run_ranks(4, three_and_four, tp_size=4)
    assert found == [pytest.approx(5.0, rel=1e-7)] * 4
    assert len(set(found)) == 1


def norms(mesh):
    """Of all full tensors, from local ones and from shares."""
    layouts = layouts_of(mesh.tensor.size, mesh.tensor.rank)
    gradients, shares = local(layouts, full_gradients()), Shares(layouts, mesh.data)
    own = {name: shares.cut(name, one) for name, one in gradients.items()}
    return (
        global_norm(gradients, layouts, mesh, sharded=False).item(),
        global_norm(own, shares.layouts, mesh, sharded=True).item(),
    )


@pytest.mark.parametrize(("world", "tp_size"), [(4, 4), (4, 2), (3, 1)])
def test_the_norm_is_that_of_the_full_tensors(world, tp_size):
    """Two KV heads on tp 4 lie twice; with dp 3 the last share of two rows is empty."""
    expected = torch.cat([one.flatten() for one in full_gradients().values()]).norm().item()
    found = [norm for pair in run_ranks(world, norms, tp_size=tp_size) for norm in pair]
    assert found == [pytest.approx(expected, rel=1e-6)] * 2 * world
    assert len(set(zip(found[::2], found[1::2], strict=True))) == 1


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.lists(st.integers(1, 16), min_size=1, max_size=3), min_size=1, max_size=4),
    st.integers(0, 99),
)
def test_few_rows_are_joined_at_once(shapes, seed):
    """Up to 256 of them."""
    generator = torch.Generator().manual_seed(seed)
    module = torch.nn.ParameterList([torch.zeros(shape) for shape in shapes])
    gradients = {name: torch.randn(one.shape, generator=generator) for name, one in module.named_parameters()}
    row_norms = [torch.linalg.vector_norm(torch.linalg.vector_norm(g, dim=-1)) for g in gradients.values()]
    found = global_norm(gradients, plain_layouts(module), Mesh(), sharded=True)
    assert found.dtype == torch.float32
    assert torch.equal(found, torch.linalg.vector_norm(torch.stack(row_norms)))


@pytest.mark.parametrize("shape", [(4096, 2048), (49152, 64), (300,), (257, 3)])
def test_the_norm_of_very_many_elements(shape):
    """One fp32 sum over the rows of an embedding would be off by 1e-5."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    module = torch.nn.ParameterList([torch.zeros(shape)])
    found = global_norm({"0": values}, plain_layouts(module), Mesh(), sharded=False)
    assert found.item() == pytest.approx(values.double().norm().item(), rel=3e-7)


def test_a_fused_parameter_is_measured_as_one_in_one_process():
    gradients = {"qkv": torch.randn(8 * DIM + 2 * 2 * DIM, HIDDEN)}
    expected = torch.linalg.vector_norm(torch.linalg.vector_norm(gradients["qkv"], dim=-1))
    found = global_norm(gradients, layouts_of(1, 0), Mesh(), sharded=False)
    assert torch.equal(found, torch.linalg.vector_norm(expected[None]))


def summed_both_ways(mesh):
    return [summed(mesh, sequence_parallel) for sequence_parallel in (True, False)]


def summed(mesh, sequence_parallel):
    """Where sums over the holders are wrong; every rank's part of a replicated piece is another one."""
    before = mesh.meter.calls["all_reduce"]
    layouts = layouts_of(mesh.tensor.size, mesh.tensor.rank)
    shares = Shares(layouts, mesh.data)
    mine = local(layouts, full_gradients(seed=mesh.tensor.rank))
    own = {name: shares.cut(name, one).clone() for name, one in mine.items()}
    sum_copies(own, shares.layouts, mesh, sequence_parallel)
    wrong = []
    for layout in shares.layouts:
        for piece, (name, box, values) in zip(
            (one for one in layout.pieces if torch.Size(one.box.shape).numel()),
            pieces_of(layout, own[layout.name]),
            strict=True,
        ):
            partial = piece.replicas > 1 and (sequence_parallel or not layout.token_wise)
            first = mesh.tensor.rank // piece.replicas * piece.replicas
            holders = range(first, first + piece.replicas) if partial else [mesh.tensor.rank]
            if not torch.equal(values, sum(full_gradients(seed)[name][box.slices()] for seed in holders)):
                wrong.append(name)
    return wrong, mesh.meter.calls["all_reduce"] - before


@pytest.mark.parametrize(("tp_size", "collectives"), [(4, 2), (2, 1)])
def test_parts_are_summed_over_their_holders(tp_size, collectives):
    """On tp 4, one collective for what all hold and one for KV heads that two hold; on dp 2, of shares."""
    found = run_ranks(4, summed_both_ways, tp_size=tp_size)
    assert found == [[([], collectives)] * 2] * 4


def test_plain_layouts_name_every_parameter():
    module = torch.nn.Sequential(torch.nn.Conv1d(2, 3, 4), torch.nn.Linear(3, 3))
    module.scale = torch.nn.Parameter(torch.tensor(1.0))
    found = {one.name: (one.shape, one.decay) for one in plain_layouts(module)}
    assert found == {
        "scale": ((1,), False),
        "0.weight": ((3, 2, 4), True),
        "0.bias": ((3,), False),
        "1.weight": ((3, 3), True),
        "1.bias": ((3,), False),
    }
    assert Shares(plain_layouts(module), ALONE).cut("scale", module.scale) is module.scale
