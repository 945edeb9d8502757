"""What failures leave of the time, against Young's and Daly's formulas and failures that are drawn."""

from __future__ import annotations

import random
from math import exp, expm1, sqrt

import pytest

from kitae.plan.failures import NODE_MTBF_HOURS, Failures

NEVER = float("inf")


def test_the_node_that_the_default_is_of():
    """419 interruptions of 2,048 nodes in 54 days."""
    assert pytest.approx(54 * 24 * 2048 / 419, rel=0.01) == NODE_MTBF_HOURS


def test_the_best_interval_by_hand():
    """A failure a day, a minute of saving: Young says sqrt(2 x 60 x 86,400) = 3,220 s, Daly a little less."""
    found = Failures(86_400, 60, 300)
    young = sqrt(2 * 60 * 86_400)
    share = 60 / (2 * 86_400)
    assert found.best_interval_s == pytest.approx(young * (1 + sqrt(share) / 3 + share / 9) - 60)
    assert found.best_interval_s == pytest.approx(young, rel=0.02)
    lost = 86_400 * exp(300 / 86_400) * expm1((found.best_interval_s + 60) / 86_400)
    assert found.goodput(found.best_interval_s) == pytest.approx(found.best_interval_s / lost)


@pytest.mark.parametrize(("mtbf", "save", "restart"), [(86_400, 60, 300), (7_200, 200, 400), (3_600, 5, 240)])
def test_no_other_interval_leaves_more(mtbf: float, save: float, restart: float):
    found = Failures(mtbf, save, restart)
    best = found.goodput(found.best_interval_s)
    assert all(found.goodput(found.best_interval_s * factor) <= best + 1e-4 for factor in (0.5, 0.8, 1.25, 2))


def test_failures_that_are_drawn_leave_as_much():
    """A thousand days with a failure every two hours on average, saved every 25 minutes."""
    found, interval, random_ = Failures(7_200, 120, 300), 1_500.0, random.Random(7)
    clock = done = 0.0
    end = 86_400_000.0
    failure = random_.expovariate(1 / found.mtbf_s)
    while clock < end:
        if clock + interval + found.save_s <= failure:
            clock += interval + found.save_s
            done += interval
            continue
        clock = failure
        failure = clock + random_.expovariate(1 / found.mtbf_s)
        while failure < clock + found.restart_s:  # it fails again while it starts
            clock, failure = failure, failure + random_.expovariate(1 / found.mtbf_s)
        clock += found.restart_s
    assert found.goodput(interval) == pytest.approx(done / clock, rel=0.01)


def test_without_failures_only_saving_costs():
    calm = Failures(NEVER, 10, 300)
    assert calm.best_interval_s == NEVER
    assert calm.goodput(NEVER) == 1
    assert calm.goodput(90) == 0.9


def test_more_failures_than_work():
    """Saving takes longer than a failure takes to come: hardly anything is left, and nothing overflows."""
    found = Failures(60, 300, 1e6)
    assert found.best_interval_s == 60
    assert 0 <= found.goodput(60) < 1e-100
    assert Failures(60, 1, 10).goodput(NEVER) == 0
