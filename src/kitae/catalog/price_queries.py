"""What AWS's Price List is asked for each item, and what is read from its answer.

The API (GetProducts, format aws_v1) answers with products, each a JSON text with attributes and terms. Of the
terms on demand, the first tier's price in the expected unit counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from kitae.catalog.instances import instances

UNITS = {"hour": ("hrs", "hours"), "gb-month": ("gb-mo",), "gb": ("gb",)}
"""The catalogue's units, as the API spells them, in small letters."""


@dataclass(frozen=True)
class Query:
    """One item."""

    item: str
    service: str
    filters: Mapping[str, str]
    unit: str
    usage: str = ""
    """End of the usage type, where filters leave several products."""


@dataclass(frozen=True)
class Answer:
    """A price, or why there is none."""

    usd: Decimal | None
    source: str = ""
    problem: str = ""


def queries(region: str) -> Iterator[Query]:
    """All that kitae knows how to ask for in a region."""
    for name in instances():
        if "ultraserver" not in name:  # several machines: none of them is a product
            yield Query(name, "AmazonEC2", _machine(name, region), "hour")
    nat = {"productFamily": "NAT Gateway", "regionCode": region}
    yield Query("nat", "AmazonEC2", nat, "hour", "NatGateway-Hours")
    yield Query("nat-traffic", "AmazonEC2", nat, "gb", "NatGateway-Bytes")
    volume = {"productFamily": "Storage", "volumeApiName": "gp3", "regionCode": region}
    yield Query("ebs-gp3", "AmazonEC2", volume, "gb-month", "VolumeUsage.gp3")
    for item, throughput in FSX.items():
        yield Query(item, "AmazonFSx", _lustre(throughput, region), "gb-month")
    standard = {"storageClass": "General Purpose", "volumeType": "Standard", "regionCode": region}
    yield Query("s3", "AmazonS3", standard, "gb-month", "TimedStorage-ByteHrs")


FSX = {
    "fsx-scratch": "N/A",
    "fsx-persistent-125": "125",
    "fsx-persistent-250": "250",
    "fsx-persistent-500": "500",
    "fsx-persistent-1000": "1000",
}
"""FSx for Lustre on SSD, by the megabytes a second that each TiB brings."""


def _machine(name: str, region: str) -> dict[str, str]:
    """Linux, on demand, with nothing installed, on shared machines."""
    return {
        "instanceType": name,
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }


def _lustre(throughput: str, region: str) -> dict[str, str]:
    return {
        "productFamily": "Storage",
        "fileSystemType": "Lustre",
        "storageType": "SSD",
        "throughputCapacity": throughput,
        "regionCode": region,
    }


def read(query: Query, products: Iterable[str]) -> Answer:
    """The one price in an answer; several different ones, or none, are a problem."""
    found: dict[Decimal, str] = {}
    try:
        for text in products:
            product = json.loads(text)
            if product["product"]["attributes"].get("usagetype", "").endswith(query.usage):
                found.update(_prices(query, product))
    except (ValueError, KeyError, TypeError, AttributeError, InvalidOperation):
        return Answer(None, problem="the answer cannot be read")
    if not found:
        return Answer(None, problem="not offered there")
    if len(found) > 1:
        listed = ", ".join(f"${usd}" for usd in sorted(found))
        return Answer(None, problem=f"several prices ({listed})")
    ((usd, source),) = found.items()
    return Answer(usd, source)


def _short(usd: Decimal) -> Decimal:
    """Without zeros at the end, but with cents."""
    cents = usd.quantize(Decimal("0.01"))
    return cents if cents == usd else usd.normalize()


def _prices(query: Query, product: Mapping[str, Any]) -> Iterator[tuple[Decimal, str]]:
    """Each price above nothing, and where it is from."""
    sku = product["product"]["sku"]
    for term in product["terms"].get("OnDemand", {}).values():
        for part in term["priceDimensions"].values():
            usd = Decimal(part["pricePerUnit"].get("USD", "0"))
            first = part.get("beginRange", "0") in ("0", "")
            if first and usd > 0 and part["unit"].lower() in UNITS[query.unit]:
                since = term.get("effectiveDate", "")[:10]
                yield _short(usd), f"AWS Price List: {query.service} {sku}, effective {since}"
