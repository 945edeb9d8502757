from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.data.cursor import Cursor
from kitae.errors import DataError


@settings(deadline=None, max_examples=60)
@given(num_samples=st.integers(1, 300), seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 10**6))
def test_each_epoch_is_a_permutation(num_samples, seed, epoch):
    epoch_samples = Cursor(num_samples, seed).samples(epoch * num_samples, num_samples)
    assert sorted(epoch_samples) == list(range(num_samples))


@settings(deadline=None, max_examples=60)
@given(num_samples=st.integers(1, 10**12), seed=st.integers(0, 2**32), start=st.integers(0, 10**15))
def test_any_place_is_reached_at_once(num_samples, seed, start):
    got = Cursor(num_samples, seed).samples(start, 5)
    assert got == [Cursor(num_samples, seed).sample(start + n) for n in range(5)]
    assert all(0 <= sample < num_samples for sample in got)


@settings(deadline=None, max_examples=30)
@given(cuts=st.lists(st.integers(0, 40), max_size=6), seed=st.integers(0, 100))
def test_a_run_cut_anywhere_sees_the_same_samples(cuts, seed):
    whole = Cursor(17, seed).samples(0, sum(cuts))
    consumed, pieces = 0, []
    for count in cuts:
        pieces += Cursor(17, seed).samples(consumed, count)
        consumed += count
    assert pieces == whole


def test_epochs_and_seeds_differ_and_order_is_pinned():
    cursor = Cursor(100, seed=1)
    epochs = {tuple(cursor.samples(100 * epoch, 100)) for epoch in range(20)}
    assert len(epochs) == 20
    assert cursor.samples(0, 100) != Cursor(100, seed=2).samples(0, 100)
    # Changing the order would break every resumed run.
    assert Cursor(10, seed=0).samples(0, 10) == [1, 7, 6, 0, 8, 5, 9, 2, 4, 3]


@pytest.mark.parametrize("num_samples", [3, 7, 20])
def test_every_sample_comes_first_equally_often(num_samples):
    """Chi-squared of the first sample over 4,000 epochs stays below its 99.99 % point (fixed keys)."""
    cursor = Cursor(num_samples, seed=5)
    counts = Counter(cursor.sample(epoch * num_samples) for epoch in range(4000))
    expected = 4000 / num_samples
    chi = sum((counts[sample] - expected) ** 2 / expected for sample in range(num_samples))
    assert chi < {3: 18.4, 7: 27.9, 20: 50.9}[num_samples]


def test_neighbours_in_a_large_epoch_are_scattered():
    samples = Cursor(1_000_000, seed=3).samples(0, 2000)
    steps = [abs(b - a) for a, b in pairwise(samples)]
    assert 300_000 < sum(steps) / len(steps) < 367_000, "the mean distance of two random places is a third"


def test_no_samples_is_an_error():
    with pytest.raises(DataError, match="no samples"):
        Cursor(0, seed=0)
