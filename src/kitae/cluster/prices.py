"""What AWS asks for machines today: its price list, and the spot market."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from kitae.cluster.aws import Account, plainly

_PRICE_LIST_REGION = "us-east-1"
"""The price list is served in few regions, for all of them."""


def on_demand(account: Account, instance: str) -> Decimal | None:
    """US dollars an hour for a Linux machine in the account's region; None where the list has none."""
    wanted = {
        "regionCode": account.region,
        "instanceType": instance,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in wanted.items()]
    with plainly("reading AWS's price list"):
        answer = account.client("pricing", _PRICE_LIST_REGION).get_products(
            ServiceCode="AmazonEC2", Filters=filters
        )
    found = [price for product in answer["PriceList"] for price in _hourly(json.loads(product))]
    return min((price for price in found if price > 0), default=None)


def _hourly(product: Any) -> list[Decimal]:
    terms = product["terms"].get("OnDemand", {}).values()
    rows = [row for term in terms for row in term["priceDimensions"].values()]
    return [Decimal(row["pricePerUnit"]["USD"]) for row in rows if row["unit"] == "Hrs"]


def spot(account: Account, instance: str, zone: str, now: datetime) -> Decimal | None:
    """US dollars an hour on the spot market of a zone, at last; None where nothing was told for a day."""
    with plainly("reading spot prices"):
        answer = account.client("ec2").describe_spot_price_history(
            InstanceTypes=[instance],
            ProductDescriptions=["Linux/UNIX"],
            AvailabilityZone=zone,
            StartTime=now - timedelta(days=1),
        )
    rows = sorted(answer["SpotPriceHistory"], key=lambda one: one["Timestamp"])
    return Decimal(rows[-1]["SpotPrice"]) if rows else None
