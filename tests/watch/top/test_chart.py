"""Curves of text: where their dots and labels stand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.watch.top.chart import Scale, Series, chart
from kitae.watch.top.look import ASCII
from kitae.watch.top.numbers import compact, seconds, usd


def lines(*series: Series, width: int = 20, height: int = 4, **options: object) -> list[str]:
    return chart(series, width, height, **options).plain.split("\n")  # type: ignore[arg-type]


def test_a_line_that_rises_goes_from_corner_to_corner():
    """Two rows of twelve signs: dots at the lower left and the upper right, none in the other corners."""
    rows = lines(Series([0, 1], [0, 7]), width=14, height=3)
    assert rows[0][:2] == "7 "
    assert rows[1][:2] == "0 "
    assert rows[2] == "  0          1"
    assert rows[0][2:].strip() != ""
    assert rows[1][2] != " "
    assert rows[0][-1] != " "
    assert rows[0][2] == rows[1][-1] == " "


def test_dots_are_where_braille_has_them():
    """A flat line in the middle of one row of signs: 4 dots high, the value at dot round(0.5 * 3) = 2."""
    assert lines(Series([0, 1], [5, 5]), width=12, height=2)[0].endswith("⠒" * 6)


def test_points_stand_over_the_curve():
    row = lines(Series([0, 10], [1, 1]), Series([5], [1], points=True), width=16, height=2)[0]
    assert row.count("●") == 1
    assert row.index("●") > 8


def test_values_are_labelled_at_the_top_the_middle_and_the_bottom():
    rows = lines(Series([1, 100], [10, 1000]), height=7, unit="steps")
    assert rows[0].startswith("1,000 ")
    assert rows[3].startswith("  505 ")
    assert rows[5].startswith("   10 ")
    assert rows[6] == "      1    100 steps"


def test_a_logarithmic_scale_has_the_geometric_mean_in_its_middle():
    assert lines(Series([1, 2], [1, 100]), height=7, log=True)[3].startswith(" 10 ")
    scale = Scale.of([1.0, 100.0], log=True)
    assert (scale(1.0), scale(10.0), scale(100.0)) == (0.0, 0.5, 1.0)


def test_what_is_not_positive_is_left_out_of_a_logarithmic_scale():
    rows = lines(Series([1, 2, 3], [-5.0, 1.0, 100.0]), height=7, log=True)
    assert rows[5].startswith("  1 ")


def test_nothing_finite_is_nothing():
    assert lines(Series([1], [math.nan])) == ["no numbers yet"]
    assert lines() == ["no numbers yet"]


def test_ascii_where_there_are_no_blocks():
    text = chart([Series([0, 1], [0, 1]), Series([1], [0], points=True)], 20, 5, glyphs=ASCII).plain
    assert text.isascii()
    assert "*" in text
    assert "o" in text


@settings(deadline=None, max_examples=60)
@given(
    ys=st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), max_size=50),
    width=st.integers(1, 60),
    height=st.integers(1, 20),
    log=st.booleans(),
)
def test_a_picture_fits_its_place(ys: list[float], width: int, height: int, log: bool):
    xs = [float(x) for x in range(len(ys))]
    text = chart([Series(xs, ys), Series(xs, ys, points=True)], width, height, log=log).plain
    assert len(text.split("\n")) <= height
    assert max(map(len, text.split("\n"))) <= max(width, 14)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (3e-4, "3.0e-04"),
        (0.0312, "0.0312"),
        (2.30259, "2.303"),
        (8192.0, "8,192"),
        (12345.0, "12.3k"),
        (524288.0, "524k"),
        (1.5e6, "1.5M"),
        (6.2e13, "62T"),
        (-4000.0, "-4,000"),
        (None, "-"),
    ],
)
def test_numbers_have_three_or_four_digits(value: float | None, text: str):
    assert compact(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.005058, "5.06 ms"), (0.0999, "99.9 ms"), (0.1, "0.1 s"), (12.345, "12.3 s")],
)
def test_seconds_have_their_unit(value: float | None, text: str):
    assert seconds(value) == text


@pytest.mark.parametrize(("amount", "text"), [(None, "-"), (1234.5, "$1,234.50"), (-2.0, "-$2.00")])
def test_money(amount: float | None, text: str):
    assert usd(amount) == text
