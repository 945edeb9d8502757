"""ZeRO-1 shares: over all ranks every element exactly once, whatever the cut."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.backend.group import Group
from kitae.parallel import cuts
from kitae.parallel.assembly import assemble, pieces_of
from kitae.parallel.cuts import Place
from kitae.parallel.layout import Box, ParameterLayout, Piece
from kitae.parallel.shares import Shares, row_range, share_layouts


def table(case, place):
    """Every kind of cut; `case` has the sizes."""
    heads, kv, dim, hidden, inner = (case[key] for key in ("heads", "kv", "dim", "hidden", "inner"))
    vocabulary = (case["vocabulary"], hidden)

    def fused(end, tail):
        return (
            cuts.query_heads(f"q{end}", (heads * dim, *tail), heads, place),
            cuts.kv_heads(f"k{end}", (kv * dim, *tail), kv, place),
            cuts.kv_heads(f"v{end}", (kv * dim, *tail), kv, place),
        )

    return [
        ParameterLayout("embed", (cuts.vocabulary("embed", vocabulary, place),)),
        ParameterLayout("norm", (cuts.replicated("norm", (hidden,), place),), initial="ones", decay=False),
        ParameterLayout("qkv", fused(".weight", (hidden,))),
        ParameterLayout("qkv.bias", fused(".bias", ()), initial="zeros", decay=False),
        ParameterLayout("out", (cuts.head_columns("o", (hidden, heads * dim), heads, place),)),
        ParameterLayout("gate_up", tuple(cuts.column(n, (inner, hidden), place) for n in ("gate", "up"))),
        ParameterLayout("down", (cuts.row("down", (hidden, inner), place),)),
        ParameterLayout(
            "side", tuple(cuts.row(n, (hidden, inner), place) for n in ("left", "right")), concat_dim=1
        ),
    ]


def numbered(shape):
    return torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float64).view(shape)


@st.composite
def cases(draw):
    tp_size = draw(st.integers(1, 8))
    kv = draw(st.sampled_from([n for n in range(1, 17) if n % tp_size == 0 or tp_size % n == 0]))
    heads = kv * draw(st.integers(1, 3)) * max(1, tp_size // kv)
    small = st.integers(1, 5)
    sizes = {"heads": heads, "kv": kv, "dim": draw(st.sampled_from([2, 4])), "hidden": draw(small)}
    return tp_size, {**sizes, "inner": tp_size * draw(small), "vocabulary": draw(st.integers(1, 40))}


@settings(deadline=None, max_examples=60)
@given(cases(), st.integers(1, 7))
def test_shares_cover_every_element_once(drawn, dp_size):
    """Of every local parameter, and with tp of every full tensor as often as it has replicas; bit-equal."""
    tp_size, case = drawn
    full = {
        piece.tensor: numbered(piece.full_shape)
        for layout in table(case, Place(1, 0))
        for piece in layout.pieces
    }
    seen = {name: torch.zeros_like(tensor) for name, tensor in full.items()}
    copies = {}
    for rank in range(tp_size):
        local_layouts = table(case, Place(tp_size, rank))
        locals_ = [
            assemble(one, lambda name, box: full[name][box.slices()], torch.float64) for one in local_layouts
        ]
        parts = [share_layouts(local_layouts, dp_size, replica) for replica in range(dp_size)]
        copies.update({p.tensor: p.replicas for one in local_layouts for p in one.pieces})
        for index, (layout, local) in enumerate(zip(local_layouts, locals_, strict=True)):
            shares = [part[index] for part in parts]
            assert {(one.name, one.decay, one.initial) for one in shares} == {
                (layout.name, layout.decay, layout.initial)
            }
            values = [
                assemble(one, lambda name, box: full[name][box.slices()], torch.float64) for one in shares
            ]
            assert torch.equal(torch.cat(values), local)
            for one, part in zip(shares, values, strict=True):
                for name, box, held in pieces_of(one, part):
                    assert torch.equal(full[name][box.slices()], held)
                    seen[name][box.slices()] += 1
    assert all(torch.all(seen[name] == copies[name]) for name in full)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 40), st.integers(1, 7))
def test_rows_follow_each_other_and_all_but_the_last_are_full(rows, size):
    ranges = [row_range(rows, size, rank) for rank in range(size)]
    assert [row for one in ranges for row in range(one.start, one.stop)] == list(range(rows))
    lengths = [one.stop - one.start for one in ranges]
    assert lengths == sorted(lengths, reverse=True)
    assert set(lengths) <= {-(-rows // size), rows % -(-rows // size) if rows else 0, 0}


def test_a_share_may_end_within_a_head():
    """4 + 2 + 2 rows on 3 ranks are 3 each: q[0:3], then q[3:4] and k, then v."""
    place = Place(1, 0)
    qkv = ParameterLayout(
        "qkv",
        (
            cuts.query_heads("q", (4, 5), 2, place),
            cuts.kv_heads("k", (2, 5), 1, place),
            cuts.kv_heads("v", (2, 5), 1, place),
        ),
    )
    found = [
        [(piece.tensor, piece.box.start[0], piece.box.shape[0]) for piece in one.pieces]
        for rank in range(3)
        for one in share_layouts([qkv], 3, rank)
    ]
    assert found == [[("q", 0, 3)], [("q", 3, 1), ("k", 0, 2)], [("v", 0, 2)]]


def test_fewer_rows_than_ranks_leave_empty_shares_of_the_right_shape():
    layout = ParameterLayout("w", (Piece("w", (2, 3), (2, 3), Box.whole((2, 3)), (2, 3)),))
    assert [share_layouts([layout], 4, rank)[0].shape for rank in range(4)] == [
        (1, 3),
        (1, 3),
        (0, 3),
        (0, 3),
    ]


def test_one_replica_has_the_layouts_and_the_tensors_themselves():
    layouts = table({"heads": 4, "kv": 2, "dim": 2, "hidden": 3, "inner": 4, "vocabulary": 9}, Place(2, 1))
    shares = Shares(layouts, Group())
    tensor = torch.zeros(layouts[0].shape)
    assert shares.layouts == layouts
    assert shares.cut("embed", tensor) is tensor
    assert shares.rows("embed") == slice(0, 5)


@pytest.mark.parametrize(("rank", "rows"), [(0, slice(0, 2)), (1, slice(2, 4)), (2, slice(4, 5))])
def test_a_cut_is_a_view_of_the_own_rows(rank, rows):
    layout = ParameterLayout("w", (Piece("w", (5, 3), (5, 3), Box.whole((5, 3)), (5, 3)),))
    shares = Shares([layout], Group((0, 1, 2), rank))
    parameter = torch.nn.Parameter(torch.zeros(5, 3))
    own = shares.cut("w", parameter)
    own.fill_(7)
    assert shares.rows("w") == rows
    assert tuple(own.shape) == shares.layouts[0].shape
    assert not own.requires_grad
    assert parameter.sum() == 7 * 3 * (rows.stop - rows.start)
    assert torch.all(parameter[rows] == 7)


def test_a_scalar_is_one_row():
    layout = ParameterLayout("s", (Piece("s", (1,), (1,), Box.whole((1,)), (1,)),))
    cut = [Shares([layout], Group((0, 1), rank)).cut("s", torch.tensor(3.0)) for rank in range(2)]
    assert [one.tolist() for one in cut] == [[3.0], []]
