"""What earlier trainings say of the next one: a factor shrunk towards 1, and an interval that narrows."""

from __future__ import annotations

from math import exp, log
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.plan.learning import UNSEEN, Z, learn

RATIOS = st.lists(st.floats(0.2, 5.0), min_size=1, max_size=30)


def test_before_any_training_the_plan_stands():
    found = learn([])
    assert (found.factor, found.spread, found.runs) == (1.0, UNSEEN, 0)


def test_one_training_counts_for_three_quarters_by_hand():
    """noise 0.04, family sqrt(0.08496^2 - 0.04^2) = 0.07495: weight 1 / (1 + (0.04 / 0.07495)^2) = 0.7783."""
    found = learn([1.2])
    assert log(found.factor) == pytest.approx(0.7783 * log(1.2), rel=1e-3)
    assert found.spread == pytest.approx(exp(Z * (0.04**2 * 0.7783 + 0.04**2) ** 0.5) - 1, rel=1e-3)
    assert found.spread < 0.092


def test_many_that_agree_are_believed():
    found = learn([1.3] * 40)
    assert found.factor == pytest.approx(1.3, rel=0.01)
    assert found.spread < 0.03


@given(RATIOS)
@settings(deadline=None, max_examples=200)
def test_one_more_that_agrees_never_widens_the_interval(ratios: list[float]):
    before = learn(ratios)
    after = learn([*ratios, exp(fmean(map(log, ratios)))])
    assert after.spread <= before.spread * (1 + 1e-12)


@given(st.floats(0.2, 5.0))
@settings(deadline=None, max_examples=50)
def test_the_first_training_narrows_it(ratio: float):
    assert learn([ratio]).spread < learn([]).spread


@given(RATIOS)
@settings(deadline=None, max_examples=100)
def test_the_factor_lies_between_one_and_what_was_seen(ratios: list[float]):
    mean, factor = exp(fmean(map(log, ratios))), learn(ratios).factor
    assert min(1, mean) * (1 - 1e-9) <= factor <= max(1, mean) * (1 + 1e-9)


@given(RATIOS, st.floats(1.0, 3.0))
@settings(deadline=None, max_examples=50)
def test_trainings_that_differ_more_widen_it(ratios: list[float], stretch: float):
    mean = fmean(map(log, ratios))
    wider = [exp(mean + stretch * (log(one) - mean)) for one in ratios]
    assert learn(wider).spread >= learn(ratios).spread * (1 - 1e-9)
