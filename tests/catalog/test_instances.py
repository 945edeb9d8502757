"""Machines and prices: every entry says when and where from, and none has a price without a source."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from kitae import catalog
from kitae.catalog.instances import chips
from kitae.cli.main import main
from kitae.errors import RecipeError


@pytest.mark.parametrize("name", [*catalog.instances()])
def test_every_machine_is_complete(name: str):
    one = catalog.instance(name)
    assert one.date.year >= 2026
    assert one.source
    assert one.vcpus > 0
    assert one.host_bytes > 2**30
    assert (one.chip is None) == (one.devices == 0)
    assert one.backend in ("xla", "neuron", "cuda", "cpu")


@pytest.mark.parametrize("name", [*chips()])
def test_every_chip_has_peaks_and_a_source(name: str):
    chip = chips()[name]
    assert chip.source
    assert set(chip.peak_tflops) == {"bf16", "fp32"}
    assert chip.peak_tflops["bf16"] > chip.peak_tflops["fp32"] > 0
    assert chip.memory_bytes > 15 * 2**30


@pytest.mark.parametrize("price", catalog.prices().values(), ids=lambda price: price.item)
def test_every_price_has_date_region_and_source(price: catalog.Price):
    assert price.usd > 0
    assert price.unit in ("hour", "gb", "gb-month")
    assert price.region
    assert price.source
    assert price.date.year >= 2024
    assert price.item in {*catalog.items(), *catalog.instances()}
    assert price.item not in catalog.items() or catalog.items()[price.item].unit == price.unit


def test_the_prices_that_people_compare_by_hand():
    """Oregon, 2024-12-10, on demand."""
    compared = {"p4de.24xlarge": "40.96", "trn1.32xlarge": "21.50", "trn1n.32xlarge": "24.78"}
    for name, usd in compared.items():
        price = catalog.price_of(name)
        assert price is not None
        assert (price.usd, price.region) == (Decimal(usd), "us-west-2")
    assert catalog.price_of("trn2.48xlarge") is None


def test_a_trn1_has_two_processes_a_chip_and_16_gib_for_each():
    one = catalog.instance("trn1.32xlarge")
    assert one.chip is not None
    assert (one.devices, one.chip.memory_bytes) == (32, 16 * 2**30)
    assert one.chip.peak_tflops["bf16"] * one.devices == 3040
    assert catalog.instance("trn2.48xlarge").devices == 64


def test_an_unknown_machine_is_answered_with_the_nearest():
    with pytest.raises(RecipeError, match=r"'trn1.32xlarg'; did you mean trn1.32xlarge"):
        catalog.instance("trn1.32xlarg")


def test_the_list_shows_prices_with_dates(capsys: pytest.CaptureFixture):
    assert main(["catalog", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    trn1 = next(line for line in lines if line.startswith("trn1.32xlarge"))
    shown = "trn1.32xlarge 32 16 GiB 128 512 GiB 800 Gb/s 21.50 (us-west-2, 2024-12-10)"
    assert trn1.split() == shown.split()
    assert any(line.startswith("trn2.48xlarge") and "unknown: give --price" in line for line in lines)
    assert "NAT gateway" in next(line for line in lines if line.startswith("nat ") and "0.045 a hour" in line)
    assert any(line.startswith("ebs-gp3") and "unknown: give --price" in line for line in lines)
    assert any(line.startswith("this machine") for line in lines)


def test_one_machine_in_lines_and_as_json(capsys: pytest.CaptureFixture):
    assert main(["catalog", "show", "trn1.32xlarge"]) == 0
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert lines["devices"] == "32"
    assert lines["price.usd"] == "21.50"
    assert lines["chip.peak_tflops.bf16"] == "95.0"
    assert main(["catalog", "show", "trn1.32xlarge", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["price"]["usd"] == "21.50"
    assert main(["catalog", "show", "p9"]) == 2
    assert "no instance is called 'p9'" in capsys.readouterr().err


def test_the_machines_that_people_ask_about_are_there():
    """Trainium 1 to 3 and its UltraServers, NVIDIA's, head nodes; what has no known price says so."""
    names = set(catalog.instances())
    assert {"trn1.2xlarge", "trn1.32xlarge", "trn1n.32xlarge", "trn2.48xlarge"} <= names
    assert {"trn2u.48xlarge-ultraserver", "trn3-ultraserver-gen1", "trn3-ultraserver-gen2"} <= names
    assert {"p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "p5en.48xlarge"} <= names
    assert {name[0] for name in names if catalog.instance(name).chip is None} >= {"c", "m", "r"}
    assert {name.partition(".")[0] for name in names} >= {"g5", "g6"}
    assert {"nat", "nat-traffic", "fsx-scratch", "fsx-persistent-125", "ebs-gp3", "s3"} <= set(
        catalog.items()
    )
