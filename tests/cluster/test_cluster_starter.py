"""The file that `init` writes is right, explained, and for what was asked."""

from __future__ import annotations

import pytest
from cluster_case import NOW, write_cluster

from kitae.catalog.aws import fleet_types, offered_regions
from kitae.cluster.check import check
from kitae.cluster.load import load_cluster
from kitae.cluster.starter import Wish, starter_text
from kitae.errors import RecipeError


@pytest.mark.parametrize("machine", fleet_types(), ids=lambda one: one.name)
def test_it_is_right_but_for_prices_that_nobody_knows(machine, tmp_path):
    region = offered_regions(machine.name)[0]
    text = starter_text(Wish("mine", region, machine.name, 4 if machine.efa else 1))
    path = write_cluster(tmp_path, text.replace("# US dollars an hour", "1.0  #"))
    found = load_cluster(path)
    assert [one for one in check(found, NOW) if one.level == "error"] == []
    assert found.file.queues[0].instance == machine.name
    assert text.count("#") > 10


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Wish(instance="trn1.32xlrage"), "did you mean trn1.32xlarge"),
        (Wish(instance="m6i.4xlarge"), "no type is called"),
        (Wish(region="us-west-9"), "no region is called"),
        (Wish(region="us-west-1"), "not offered in us-west-1"),
        (Wish(instance="trn1.2xlarge", nodes=2), "no EFA"),
    ],
)
def test_what_cannot_be_is_refused(wish, words):
    with pytest.raises(RecipeError, match=words):
        starter_text(wish)


def test_the_limit_is_twelve_hours_of_everything():
    """12 x (0.68 + 4 x 21.50 + 0.045 + 0.14 x 1200 / 730) = 1043.46, up to the next hundred."""
    assert "max_cost_usd: 1100" in starter_text(Wish())
