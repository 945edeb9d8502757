"""Row 39 and T55: money is a table that one can compute by hand, to the cent."""

from __future__ import annotations

from decimal import Decimal

import pytest

from kitae.errors import RecipeError
from kitae.plan.money import Rent, bill, per_million_tokens, refuse_above


def test_the_bill_of_four_nodes_by_hand():
    """4 x $21.50 for 15 minutes of compilation, 7 h and 15 idle minutes; NAT; 1,200 GB of FSx; traffic."""
    rent = Rent(
        head="r6a.12xlarge", fsx_gb=1200, nat=True, nat_gb=100, prices={"r6a.12xlarge": Decimal("2.7216")}
    )
    found = bill("trn1.32xlarge", 4, {"compile": 0.25, "train": 7.0, "idle": 0.25}, rent)
    assert [(line.item, line.usd) for line in found.lines] == [
        ("trn1.32xlarge, compile", Decimal("21.50")),
        ("trn1.32xlarge, train", Decimal("602.00")),
        ("trn1.32xlarge, idle", Decimal("21.50")),
        ("r6a.12xlarge", Decimal("20.41")),  # 7.5 x 2.7216 = 20.412
        ("fsx-scratch", Decimal("1.73")),  # 1200 x 0.140 x 7.5 / 730 = 1.726
        ("nat", Decimal("0.34")),  # 7.5 x 0.045 = 0.3375
        ("nat-traffic", Decimal("4.50")),
    ]
    assert found.total == Decimal("671.98")


def test_a_line_can_be_computed_again_from_what_it_says():
    hours = {"compile": 600 / 3600, "train": 443.669258, "checkpoint": 0.0535}
    train, checkpoint = bill("trn1.32xlarge", 64, hours).lines[1:]
    assert train.how == "64 x 443:40:09 h x $21.50 a hour"
    assert train.usd == Decimal("610488.77")  # 64 x 1,597,209 s / 3600 x 21.50 = 610,488.773
    assert checkpoint.usd == Decimal("73.77")  # 64 x 193 s / 3600 x 21.50 = 73.769
    fsx, nat = bill("trn1.32xlarge", 64, hours, Rent(fsx_gb=1200, nat=True)).lines[3:]
    assert fsx.how == "1200 GB x 443:53:22 h / 730 x $0.140 a GB-month"
    assert fsx.usd == Decimal("102.16")  # 1200 x 443.88944 / 730 x 0.14 = 102.1554
    assert nat.usd == Decimal("19.98")  # 443.88944 x 0.045 = 19.9750


def test_no_price_is_too_large_to_be_summed():
    dear = Rent(prices={"trn1.32xlarge": Decimal(10**9)})
    assert bill("trn1.32xlarge", 65_536, {"train": 1e15}, dear).total == Decimal("6.5536e28")


def test_the_wait_of_three_nodes_for_a_fourth():
    """T55: 3 x 20 / 60 x price."""
    assert bill("trn1.32xlarge", 3, {"wait": 20 / 60}).total == Decimal("21.50")


def test_a_price_without_a_source_is_not_invented():
    found = bill("trn2.48xlarge", 1, {"train": 1.0}, Rent(head="r6a.12xlarge"))
    assert found.unknown == ("trn2.48xlarge, train", "r6a.12xlarge")
    assert found.total is None
    given = Rent(prices={"trn2.48xlarge": Decimal(46)})
    assert bill("trn2.48xlarge", 1, {"train": 1.5}, given).total == Decimal("69.00")


def test_above_the_limit_is_refused():
    refuse_above(Decimal("99.99"), None)
    refuse_above(Decimal("99.99"), Decimal(100))
    with pytest.raises(RecipeError, match=r"planned to cost \$100.01, which is more than \$100"):
        refuse_above(Decimal("100.01"), Decimal(100))
    with pytest.raises(RecipeError, match="a price is unknown"):
        refuse_above(None, Decimal(100))


def test_a_million_tokens():
    """8B on 32 nodes: 392.8 thousand tokens a second for 32 x $21.50 an hour."""
    assert per_million_tokens(Decimal("688.00"), 392_806_400 * 36 // 10) == Decimal("0.4865")
