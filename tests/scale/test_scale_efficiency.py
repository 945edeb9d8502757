"""Efficiency, serial fraction and the comparison of losses, against laws and numbers by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.scale.efficiency import (
    Spread,
    difference,
    efficiency,
    fit,
    paired,
    points_of,
    serial_fraction,
)
from kitae.scale.measured import Measured


def of(width: int, *rates: float) -> list[Measured]:
    return [Measured(width, str(number), rate) for number, rate in enumerate(rates, 1)]


def test_the_smallest_width_need_not_be_one():
    found = efficiency(of(4, 400.0), of(16, 1200.0))
    assert found == Spread(0.75, 0.75, 0.75)


def test_rounds_are_compared_with_themselves():
    """A machine that was twice as slow in the second round shows the same efficiency in both."""
    found = efficiency(of(1, 100.0, 50.0), of(2, 160.0, 80.0))
    assert (found.low, found.median, found.high) == (0.8, 0.8, 0.8)
    assert paired(of(1, 100.0), of(2, 160.0, 80.0)) == [0.8]


def test_without_common_rounds_the_spread_is_that_of_all():
    others = [Measured(2, name, rate) for name, rate in (("x", 150.0), ("y", 180.0))]
    found = efficiency(of(1, 100.0, 120.0), others)
    assert (found.low, found.high) == pytest.approx((150 / 120 / 2, 180 / 100 / 2))
    assert found.median == pytest.approx(165 / 110 / 2)


def test_karp_and_flatt_by_hand():
    """A speed-up of 4.71 on 8: (1 / 4.71 - 1 / 8) / (1 - 1 / 8) = 0.0998."""
    assert serial_fraction("strong", 4.71 / 8, 8) == pytest.approx(0.0998, abs=1e-4)
    assert serial_fraction("weak", 15 / 16, 16) == pytest.approx(1 / 15)


@settings(deadline=None, max_examples=50)
@given(
    serial=st.floats(0, 1),
    base=st.integers(1, 4),
    widths=st.lists(st.integers(5, 512), min_size=1, max_size=5, unique=True),
    kind=st.sampled_from(["strong", "weak"]),
)
def test_rates_that_follow_a_law_give_its_fraction_back(serial, base, widths, kind):
    def rate(width: int) -> float:
        ratio = width / base
        speedup = 1 / (serial + (1 - serial) / ratio) if kind == "strong" else ratio - serial * (ratio - 1)
        return 1000 * speedup

    measured = {width: of(width, rate(width)) for width in (base, *widths)}
    found = fit(kind, points_of(measured))
    assert found is not None
    assert found.serial_fraction == pytest.approx(serial, abs=1e-9)
    assert found.standard_error is None or found.standard_error == pytest.approx(0, abs=1e-7)
    for width in widths:
        reached = efficiency(measured[base], measured[width]).median
        assert serial_fraction(kind, reached, width / base) == pytest.approx(serial, abs=1e-9)
        assert found.efficiency(width / base) == pytest.approx(reached)


def test_the_fit_tells_how_sure_it_is():
    """x = 1/2 twice, y = 0.05 and 0.15: slope 0.2, left over 2 x 0.05^2, error sqrt(0.005 / 1 / 0.5)."""
    found = fit("weak", [(2.0, 0.95), (2.0, 0.85)])
    assert found is not None
    assert found.serial_fraction == pytest.approx(0.2)
    assert found.standard_error == pytest.approx(0.1)
    assert fit("strong", [(1.0, 1.0)]) is None
    assert fit("strong", [(2.0, 1.0)]).standard_error is None


def test_more_than_perfect_has_a_serial_fraction_below_nothing():
    assert serial_fraction("strong", 1.1, 2) < 0


def with_losses(losses: tuple[float, ...], norms: tuple[float, ...] = ()) -> list[Measured]:
    return [Measured(1, "1", 1.0, losses=losses, grad_norms=norms)]


def test_losses_and_gradient_norms_of_the_first_updates_are_compared():
    base = with_losses((4.0, 3.0, 2.0), (1.0, 1.0, 1.0))
    assert difference(base, base) == 0.0
    assert difference(base, with_losses((4.0, 3.03, 2.0), (1.0, 1.0, 1.0))) == pytest.approx(0.01)
    # Twice the gradient, which AdamW's losses hardly show.
    assert difference(base, with_losses((4.0, 3.0, 2.0), (2.0, 2.0, 2.0))) == 1.0
    assert difference(of(1, 1.0), of(2, 1.0)) is None
    long = with_losses((1.0,) * 6)
    assert difference(long, with_losses((1.0,) * 5 + (9.0,))) == 0.0
