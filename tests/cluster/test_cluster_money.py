"""What a cluster costs, against sums by hand."""

from __future__ import annotations

from decimal import Decimal

from cluster_case import loaded

from kitae.cluster.money import dollars, tariff


def test_hours_idle_and_full(tmp_path):
    """Row 39: nodes x price, storage and gateway beside them."""
    rates = tariff(
        loaded(tmp_path, "prices={ebs-gp3: 0.073, public-ipv4: 0.005}", "queues.0.disk_gb=100").file
    )
    head, nat, addresses = Decimal("0.68"), Decimal("0.045"), Decimal("0.010")
    fsx = Decimal("0.140") * 1200 / 730
    disk = Decimal("0.073") / 730
    assert rates.unknown == ()
    assert abs(rates.idle_usd - (head + nat + addresses + fsx + 200 * disk)) < Decimal("1e-9")
    assert abs(rates.full_usd - (head + nat + addresses + fsx + 600 * disk + 4 * Decimal("21.50"))) < Decimal(
        "1e-9"
    )


def test_an_own_price_counts_before_the_catalogue(tmp_path):
    one = next(
        r
        for r in tariff(loaded(tmp_path, "prices={trn1.32xlarge: 10}").file).rates
        if r.item == "trn1.32xlarge"
    )
    assert (one.idle_usd, one.full_usd) == (0, 40)


def test_unknown_prices_are_named_once_and_count_nothing(tmp_path):
    rates = tariff(loaded(tmp_path, "fsx.type=PERSISTENT_2", "fsx.throughput=125").file)
    assert rates.unknown == ("ebs-gp3", "fsx-persistent", "public-ipv4")


def test_a_given_network_costs_nothing_and_a_block_is_paid_already(tmp_path):
    subnets = "network={public_subnet: subnet-01234567, private_subnet: subnet-01234568}"
    block = "queues.0.capacity={kind: capacity-block, id: cr-01234567, ends: 2026-12-24T11:30Z}"
    rates = tariff(loaded(tmp_path, subnets, block, "queues.0.min=4", "fsx=null").file)
    assert {rate.item for rate in rates.rates} == {"c5.4xlarge", "trn1.32xlarge", "ebs-gp3"}
    assert rates.full_usd == rates.idle_usd == Decimal("0.68")


def test_dollars():
    assert [dollars(Decimal(text)) for text in ("0.005", "1234.5", "0")] == ["$0.01", "$1,234.50", "$0.00"]
