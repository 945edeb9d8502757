"""Numbers as a person reads them."""

from __future__ import annotations

from math import inf, nan

import pytest

from kitae.watch.report import figures


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (figures.number(None), "–"),
        (figures.number(nan), "–"),
        (figures.number(6144), "6,144"),
        (figures.number(0.0), "0"),
        (figures.number(23631.71), "23,632"),
        (figures.number(0.001234567), "0.001235"),
        (figures.number(-2.5), "-2.5"),
        (figures.loss(2.31664), "2.3166"),
        (figures.loss(inf), "–"),
        (figures.percent(0.4297), "43.0 %"),
        (figures.percent(0.25, "+"), "+25.0 %"),
        (figures.amount(134_515_008), "134.5 M"),
        (figures.amount(8_030_261_248), "8.03 B"),
        (figures.amount(28_832), "28,832"),
        (figures.size(5_546_700_800), "5.55 GB"),
        (figures.size(12), "12 bytes"),
        (figures.usd(1234.5), "$1,234.50"),
        (figures.usd(None), "–"),
        (figures.seconds(0.00515), "5.15 ms"),
        (figures.seconds(12.34), "12.3 s"),
        (figures.seconds(276), "4 min 36 s"),
        (figures.seconds(3599.9), "1 h 0 min"),
        (figures.seconds(9000), "2 h 30 min"),
        (figures.seconds(100_000), "1 d 3 h"),
        (figures.moment("2026-11-30T21:04:36+02:00"), "2026-11-30 19:04 UTC"),
        (figures.moment("yesterday"), "yesterday"),
        (figures.moment(None), "–"),
        (figures.counted(1, "attempt"), "1 attempt"),
        (figures.counted(2000, "step"), "2,000 steps"),
    ],
)
def test_numbers_have_their_units(shown: str, expected: str):
    assert shown == expected


def test_a_sparkline_goes_from_the_lowest_to_the_highest():
    assert figures.sparkline([1, 2, 3, 4, 5, 6, 7, 8]) == "▁▂▃▄▅▆▇█"
    assert figures.sparkline([5.0, 5.0]) == "▁▁"
    assert figures.sparkline([nan]) == ""
    assert len(figures.sparkline(list(range(1000)))) == 40
