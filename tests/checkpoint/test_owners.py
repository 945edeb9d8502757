"""Which rank writes what: every element once, and all ranks about the same."""

from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from topology_case import Topology

from kitae.checkpoint.coverage import Coverage
from kitae.checkpoint.owners import divide
from kitae.parallel.assembly import full_box
from kitae.parallel.layout import Box, ParameterLayout, Piece

TOPOLOGIES = st.builds(
    Topology,
    tp=st.sampled_from([1, 2, 4, 8]),
    dp=st.integers(1, 5),
    zero=st.booleans(),
    tied=st.booleans(),
)


def loads(division):
    """Elements that each rank writes."""
    return [sum(prod(box.shape) for boxes in own.values() for box in boxes) for own in division.boxes]


def holders(topology):
    """By tensor and box, the ranks that have it."""
    held = {}
    for rank in range(topology.size):
        for piece in (piece for one in topology.layouts(rank) for piece in one.pieces):
            if prod(piece.box.shape):
                held.setdefault((piece.tensor, full_box(piece)), set()).add(rank)
    return held


@settings(deadline=None, max_examples=40)
@given(topology=TOPOLOGIES)
def test_every_element_is_written_once_by_a_rank_that_has_it(topology):
    shapes = {p.tensor: p.full_shape for one in Topology(tied=topology.tied).layouts(0) for p in one.pieces}
    division = divide(topology.world())
    written, held = Coverage(shapes), holders(topology)
    for rank, own in enumerate(division.boxes):
        for name, boxes in own.items():
            for box in boxes:
                written.add(name, box, box.shape)
                assert rank in held[name, box]
    written.check()
    assert list(division.names) == list(shapes)
    assert divide(topology.world()) == division


@settings(deadline=None, max_examples=40)
@given(topology=TOPOLOGIES)
def test_no_shared_box_would_be_better_off_elsewhere(topology):
    """A rank that writes a shared box has at most one such box more to write than the others that hold it."""
    division, held = divide(topology.world()), holders(topology)
    load = loads(division)
    largest = max((prod(box.shape) for (_, box), ranks in held.items() if len(ranks) > 1), default=0)
    for rank, own in enumerate(division.boxes):
        for name, box in ((name, box) for name, boxes in own.items() for box in boxes):
            assert all(load[rank] - load[other] <= largest for other in held[name, box])


def whole(name, rows):
    return ParameterLayout(name, (Piece(name, (rows,), (rows,), Box.whole((rows,)), (rows,)),))


def test_copies_share_the_work_by_size():
    world = [[whole("a", 5), whole("b", 3), whole("c", 4), whole("d", 2)]] * 2
    division = divide(world)
    assert [list(own) for own in division.boxes] == [["a", "d"], ["b", "c"]]
    assert loads(division) == [7, 7]


def test_who_holds_something_alone_gets_less_of_what_is_shared():
    alone, shared = [whole("alone", 6)], [whole("shared", 4)]
    division = divide([[*alone, *shared], [whole("other", 1), *shared]])
    assert [list(own) for own in division.boxes] == [["alone"], ["other", "shared"]]


@pytest.mark.parametrize(("tp", "dp"), [*product([1, 2], [2, 3])])
def test_shares_are_written_by_those_that_have_them(tp, dp):
    """With ZeRO-1 nothing but what tensor-parallel ranks have in common is there twice."""
    load = loads(divide(Topology(tp, dp, zero=True).world()))
    assert max(load) <= 1.1 * sum(load) / len(load)


def test_a_share_without_some_tensors_does_not_change_their_order():
    """Ranks have the rows of q, of q and k, and of v: the order is that of the fused parameter."""
    names = divide(Topology(1, 5, zero=True).world()).names
    assert [name.split(".")[-2] for name in names if ".layers.0.self_attn" in name] == [
        *("q_proj", "k_proj", "v_proj") * 2,
        "o_proj",
        "o_proj",
    ]
