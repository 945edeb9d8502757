from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.data.pairs import IS_NEXT, IS_RANDOM, Pairs, Runs, _excess
from kitae.data.rows import IGNORED

SIZE = 64


class Texts:
    """Documents by the lengths of their sentences, one behind the other."""

    def __init__(self, documents):
        ends = np.cumsum([0, *(length for document in documents for length in document)]).tolist()
        places = np.cumsum([0, *map(len, documents)]).tolist()
        self._places = [ends[a : b + 1] for a, b in pairwise(places)]
        self.tokens = ends[-1]

    def __len__(self):
        return len(self._places)

    def places(self, document):
        return self._places[document]

    def owner(self, place):
        return next(n for n, p in enumerate(self._places) if p[0] <= place < p[-1])


def texts(count=300, seed=0):
    rng = np.random.default_rng(seed)
    return Texts([rng.integers(3, 20, rng.integers(1, 40)).tolist() for _ in range(count)])


def made(kind, documents, short=0.1, seed=3):
    rows = kind(documents, SIZE, short, seed, "train")
    return list(rows.pieces()), rows.counts


documents = st.lists(st.lists(st.integers(1, SIZE - 3), min_size=1, max_size=8), min_size=2, max_size=6)


@settings(deadline=None, max_examples=60)
@given(documents=documents, short=st.sampled_from([0.0, 0.5, 1.0]), seed=st.integers(0, 5))
def test_every_token_is_in_one_row_of_its_document_or_counted(documents, short, seed):
    store = Texts(documents)
    pieces, counts = made(Pairs, store, short, seed)
    own = Counter()
    for piece in pieces:
        assert piece.first < piece.first_end
        assert piece.second < piece.second_end
        assert piece.first_end - piece.first + piece.second_end - piece.second <= SIZE - 3
        owners = {store.owner(place) for place in range(piece.first, piece.first_end)}
        others = {store.owner(place) for place in range(piece.second, piece.second_end)}
        assert len(owners) == len(others) == 1
        assert (owners == others) == (piece.next_sentence == IS_NEXT)
        own.update(range(piece.first, piece.first_end))
        if piece.next_sentence == IS_NEXT:
            assert piece.first_end <= piece.second
            own.update(range(piece.second, piece.second_end))
    assert set(own.values()) <= {1}
    assert counts.own == len(own)
    assert counts.own + counts.cut_off == store.tokens
    assert counts.random_pairs == sum(piece.next_sentence == IS_RANDOM for piece in pieces)
    assert counts.borrowed == sum(p.second_end - p.second for p in pieces if p.next_sentence == IS_RANDOM)


@settings(deadline=None, max_examples=60)
@given(documents=documents, short=st.sampled_from([0.0, 0.5]))
def test_rows_of_one_text_hold_everything(documents, short):
    store = Texts(documents)
    pieces, counts = made(Runs, store, short)
    assert [place for piece in pieces for place in range(piece.first, piece.first_end)] == list(
        range(store.tokens)
    )
    assert counts.own == store.tokens
    assert all(piece.second == piece.second_end for piece in pieces)
    assert {piece.next_sentence for piece in pieces} == {IGNORED}
    assert max(piece.first_end - piece.first for piece in pieces) <= SIZE - 2


def test_half_of_the_pairs_are_random():
    """Also though texts at the end of a document can only get a random second one."""
    pieces, counts = made(Pairs, texts())
    assert len(pieces) > 1000
    assert abs(counts.random_pairs / len(pieces) - 0.5) < 0.02
    lengths = [p.first_end - p.first + p.second_end - p.second for p in pieces]
    assert np.mean([length == SIZE - 3 for length in lengths]) > 0.65


def test_random_texts_come_from_everywhere():
    store = texts(20)
    pieces = [piece for seed in range(4) for piece in made(Pairs, store, seed=seed)[0]]
    assert len({store.owner(p.second) for p in pieces if p.next_sentence == IS_RANDOM}) == 20


def test_short_rows_are_as_many_as_asked_for():
    store = texts()
    none, _ = made(Pairs, store, short=0.0)
    all_short, _ = made(Pairs, store, short=1.0)
    assert len(all_short) > 1.5 * len(none)


def test_seed_and_split_decide_and_nothing_else():
    store = texts(60)
    assert made(Pairs, store) == made(Pairs, store)
    assert made(Pairs, store)[0] != made(Pairs, store, seed=4)[0]
    assert made(Pairs, store)[0] != list(Pairs(store, SIZE, 0.1, 3, "heldout").pieces())


@pytest.mark.parametrize(
    ("first", "second", "cuts"),
    [
        (10, 10, (0, 0)),
        (20, 10, (10, 0)),
        (10, 21, (0, 11)),
        (15, 16, (5, 6)),
        (16, 16, (6, 6)),
        (30, 5, (15, 0)),
    ],
)
def test_the_longer_text_is_cut(first, second, cuts):
    """As BERT's truncate_seq_pair does it, one token after the other, to 20."""
    assert _excess(first, second, 20) == cuts
    assert _excess(first, second, 20) == one_by_one(first, second, 20)


def one_by_one(first, second, most):
    cuts = [0, 0]
    while first - cuts[0] + second - cuts[1] > most:
        cuts[0 if first - cuts[0] > second - cuts[1] else 1] += 1
    return tuple(cuts)


@settings(deadline=None)
@given(st.integers(1, 99), st.integers(1, 99), st.integers(2, 99))
def test_cuts_are_those_of_bert(first, second, most):
    assert _excess(first, second, most) == one_by_one(first, second, most)
