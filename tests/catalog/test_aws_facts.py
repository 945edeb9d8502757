"""Regions, zones and quotas of the catalogue."""

from __future__ import annotations

import pytest

from kitae.catalog.aws import (
    fleet_types,
    network_quotas,
    offered_regions,
    offered_zones,
    parallelcluster_images,
    regions,
    vcpu_quota,
    zone_prefix,
)


@pytest.mark.parametrize(
    ("region", "prefix"),
    [
        ("us-west-2", "usw2"),
        ("ap-northeast-1", "apne1"),
        ("ap-southeast-4", "apse4"),
        ("ca-central-1", "cac1"),
        ("il-central-1", "ilc1"),
        ("me-south-1", "mes1"),
    ],
)
def test_prefix_of_zone_ids(region, prefix):
    assert zone_prefix(region) == prefix


def test_every_offered_zone_lies_in_a_region_that_is_known():
    prefixes = {zone_prefix(region) for region in regions()}
    zones = [zone for one in fleet_types() for zone in offered_zones(one.name) or ()]
    assert zones
    assert {zone.partition("-")[0] for zone in zones} <= prefixes


def test_trn1_is_offered_where_it_was_used():
    assert "usw2-az4" in offered_zones("trn1.32xlarge")
    assert "us-west-2" in offered_regions("trn1.32xlarge")
    assert offered_zones("x9.nothing") is None


def test_fleets_have_accelerators_and_are_types():
    names = [one.name for one in fleet_types()]
    assert "trn1.32xlarge" in names
    assert not [name for name in names if "ultraserver" in name or name.startswith("c5")]


@pytest.mark.parametrize(
    ("instance", "spot", "code"),
    [
        ("trn1.32xlarge", False, "L-2C3B7624"),
        ("trn2.48xlarge", True, "L-6B0D517C"),
        ("p5.48xlarge", False, "L-417A185B"),
        ("g6.48xlarge", False, "L-DB2E81BA"),
        ("r6a.12xlarge", False, "L-1216C47A"),
    ],
)
def test_quotas(instance, spot, code):
    assert vcpu_quota(instance, spot=spot).code == code


def test_what_is_not_known_has_no_quota():
    assert vcpu_quota("xyz.large", spot=False) is None
    assert [one.service for one in network_quotas()] == ["vpc", "ec2"]


def test_images_are_those_of_the_pinned_release():
    assert "ubuntu2204" in parallelcluster_images()
    assert "ubuntu2004" not in parallelcluster_images()
