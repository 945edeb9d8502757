"""Constants of a cost are found again from samples that were made with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.plan.fitting import fit, seconds_of


def samples_of(constants: dict[str, float], seed: int, count: int):
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        counts = {name: float(10 ** random.uniform(0, 4)) for name in constants}
        found.append((counts, seconds_of(counts, constants)))
    return found


@given(st.lists(st.floats(1e-9, 1e-3), min_size=1, max_size=5), st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_constants_are_found_again(values: list[float], seed: int):
    constants = {f"c{number}": value for number, value in enumerate(values)}
    samples = samples_of(constants, seed, 12)
    found = fit(samples, {})
    for counts, seconds in samples:
        assert seconds_of(counts, found) == pytest.approx(seconds, rel=1e-4)


@given(st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_none_is_negative_where_noise_would_make_it_so(seed: int):
    random = np.random.default_rng(seed)
    samples = [(c, s * random.uniform(0.5, 2)) for c, s in samples_of({"a": 1.0, "b": 1e-3}, seed, 8)]
    assert all(value >= 0 for value in fit(samples, {}).values())


def test_what_is_known_stays_and_only_the_rest_is_explained():
    samples = [({"known": 2.0, "new": 1.0}, 7.0), ({"known": 1.0, "new": 3.0}, 11.0)]
    assert fit(samples, {"known": 2.0}) == pytest.approx({"new": 3.0})


def test_a_constant_that_nothing_measures_costs_nothing():
    assert seconds_of({"a": 3.0, "b": 5.0}, {"a": 2.0}) == 6.0


def test_what_no_sample_has_is_left_to_later_ones():
    assert fit([({"a": 2.0, "b": 0.0}, 6.0)], {}) == pytest.approx({"a": 3.0})
