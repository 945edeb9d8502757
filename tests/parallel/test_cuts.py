import pytest

from kitae.errors import WeightsError
from kitae.parallel import cuts
from kitae.parallel.cuts import Place
from kitae.parallel.layout import Box


@pytest.mark.parametrize(
    ("rows", "tp_size", "padded"), [(99, 2, 100), (99, 8, 104), (151669, 4, 151672), (32001, 2, 32002)]
)
def test_vocabulary_is_padded_to_a_multiple(rows, tp_size, padded):
    """T12."""
    assert cuts.padded_vocabulary(rows, tp_size) == padded
    pieces = [cuts.vocabulary("embed", (rows, 4), Place(tp_size, rank)) for rank in range(tp_size)]
    assert {piece.local_shape for piece in pieces} == {(padded // tp_size, 4)}
    assert sum(piece.box.shape[0] for piece in pieces) == rows


def test_last_rank_may_hold_only_padding():
    piece = cuts.vocabulary("embed", (9, 2), Place(8, 7))
    assert piece.box == Box((9, 0), (0, 2))
    assert piece.local_shape == (2, 2)


def test_each_query_head_meets_its_kv_head():
    """T04: 8 query heads, 2 KV heads, 8 ranks: query head h meets KV head h // 4."""
    for rank in range(8):
        place = Place(8, rank)
        query = cuts.query_heads("q", (8 * 3, 5), 8, place)
        key = cuts.kv_heads("k", (2 * 3, 5), 2, place)
        assert (query.view, query.box.start[0], query.box.shape[0]) == ((8, 3, 5), rank, 1)
        assert (key.box.start[0], key.box.shape[0], key.replicas) == (rank // 4, 1, 4)
        assert query.replicas == 1


def test_output_columns_follow_the_query_heads():
    piece = cuts.head_columns("o", (5, 8 * 3), 8, Place(4, 1))
    assert piece.view == (5, 8, 3)
    assert piece.box == Box((0, 2, 0), (5, 2, 3))
    assert piece.local_shape == (5, 6)


def test_rows_and_columns():
    assert cuts.column("w", (8, 6), Place(4, 3)).box == Box((6, 0), (2, 6))
    assert cuts.row("w", (8, 6), Place(2, 1)).box == Box((0, 3), (8, 3))
    assert cuts.replicated("w", (8,), Place(4, 3)).replicas == 4


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda: cuts.query_heads("q", (18, 4), 9, Place(2, 0)), "q: 9 query heads do not divide by"),
        (lambda: cuts.kv_heads("k", (6, 4), 3, Place(2, 0)), "k: 3 KV heads do not divide by"),
        (
            lambda: cuts.kv_heads("k", (6, 4), 3, Place(4, 0)),
            "k: 3 KV heads do not spread evenly over 4 ranks",
        ),
        (lambda: cuts.head_columns("o", (4, 18), 9, Place(2, 0)), "o: 9 query heads do not divide by"),
        (lambda: cuts.column("w", (7, 4), Place(2, 0)), "w: 7 entries of dimension 0 do not divide by"),
        (lambda: cuts.row("w", (4, 7), Place(2, 0)), "w: 7 entries of dimension 1 do not divide by"),
        (lambda: Place(2, 2), "rank 2 does not exist in a group of 2"),
    ],
)
def test_what_does_not_divide_is_named(cut, message):
    with pytest.raises(WeightsError, match=message):
        cut()
