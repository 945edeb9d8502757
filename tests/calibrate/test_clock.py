"""Times on a machine that others use: the best of several, tried again while no two agree."""

from __future__ import annotations

import pytest

from kitae.calibrate import clock
from kitae.calibrate.clock import Timing, timed


@pytest.fixture
def lasting(monkeypatch: pytest.MonkeyPatch):
    """Work that takes what a list says, by a clock of its own."""

    class Lasting:
        now, calls = 0.0, 0
        seconds: tuple[float, ...] = ()

        def __call__(self) -> None:
            self.now += self.seconds[self.calls % len(self.seconds)]
            self.calls += 1

    work = Lasting()
    monkeypatch.setattr(clock.time, "perf_counter", lambda: work.now)
    monkeypatch.setattr(clock.time, "process_time", lambda: work.now)
    return work


def test_the_first_try_warms_up_and_the_best_counts(lasting):
    lasting.seconds = (9.0, 2.0, 1.0, 1.01)
    assert timed(lasting, budget_s=0.1) == Timing(1.0, pytest.approx(1.01), 3)


def test_it_goes_on_until_two_tries_agree(lasting):
    lasting.seconds = (9.0, 1.0, 2.0, 3.0, 4.0, 1.02)
    found = timed(lasting, budget_s=3.0)
    assert (found.tries, found.best) == (5, 1.0)


def test_patience_ends(lasting):
    lasting.seconds = tuple(1.5**number for number in range(40))
    assert timed(lasting, budget_s=1.0).tries == 3
    lasting.seconds = (0.1, *(1.0 + number for number in range(40)))
    lasting.calls = 0
    assert timed(lasting, budget_s=0.5, least=2).tries == 2


def test_the_spread_is_how_much_longer_it_usually_takes():
    assert Timing(2.0, 3.0, 5).spread == 0.5
