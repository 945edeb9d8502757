"""Prices asked of AWS: through a small endpoint that answers as the Price List does, and what goes wrong."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from kitae import catalog
from kitae.catalog.price_queries import Query, queries, read
from kitae.catalog.refresh import refresh
from kitae.catalog.refreshed import prices_file, refreshed_prices
from kitae.cli.main import main
from kitae.errors import RecipeError, StorageError

TODAY = datetime.date(2026, 12, 1)


def product(usd: str, unit: str = "Hrs", usage: str = "USW2-BoxUsage", sku: str = "ABC", **dimension) -> str:
    part = {"unit": unit, "beginRange": "0", "pricePerUnit": {"USD": usd}, **dimension}
    term = {"effectiveDate": "2026-11-01T00:00:00Z", "priceDimensions": {"x": part}}
    attributes = {"usagetype": usage, "regionCode": "us-west-2"}
    whole = {"product": {"sku": sku, "attributes": attributes}, "terms": {"OnDemand": {"t": term}}}
    return json.dumps(whole)


ANSWERS = {
    "trn1.32xlarge": [product("22.0000000000")],
    "trn2.48xlarge": [product("44.7000000000", sku="TRN2")],
    "p5.48xlarge": [product("98.32"), product("0", sku="RESERVED")],
    "p4de.24xlarge": [product("4.0")],  # a tenth of what is known
    "g5.xlarge": [product("1.1", sku="A"), product("1.2", sku="B")],
    "g6.48xlarge": ["{broken"],
    "NAT Gateway": [
        product("0.05", usage="USW2-NatGateway-Hours"),
        product("0.045", "GB", "USW2-NatGateway-Bytes"),
        product("0.01", "GB", "USW2-NatGateway-Prvd-Bytes"),
    ],
    "gp3": [product("0.08", "GB-Mo", "USW2-EBS:VolumeUsage.gp3")],
    "N/A": [product("0.14", "GB-Mo", "USW2-Scratch")],
    "General Purpose": [product("0.023", "GB-Mo", "USW2-TimedStorage-ByteHrs")],
}


def key_of(filters: dict[str, str]) -> str:
    if filters.get("productFamily") == "NAT Gateway":
        return "NAT Gateway"
    names = ("instanceType", "volumeApiName", "throughputCapacity", "storageClass")
    return next(filters[name] for name in names if name in filters)


def asked(query: Query) -> list[str]:
    return ANSWERS.get(key_of(dict(query.filters)), [])


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("kitae.catalog.refreshed.state_folder", lambda: tmp_path / "state")
    return tmp_path


def test_every_machine_and_item_is_asked_for_in_the_region():
    found = {query.item: query for query in queries("eu-north-1")}
    machines = {name for name in catalog.instances() if "ultraserver" not in name}
    assert set(found) == machines | set(catalog.items())
    assert all(query.filters["regionCode"] == "eu-north-1" for query in found.values())
    assert {query.unit for query in found.values()} == {"hour", "gb", "gb-month"}
    assert all(found[name].unit == item.unit for name, item in catalog.items().items())


def test_what_was_answered_lies_over_what_came_with_kitae():
    changes = {one.item: one for one in refresh(asked, "us-west-2", (), TODAY)}
    assert changes["trn1.32xlarge"].line == "trn1.32xlarge: $22.00 a hour, was $21.50"
    assert changes["trn2.48xlarge"].line == "trn2.48xlarge: $44.70 a hour, was unknown"
    price = catalog.price_of("trn2.48xlarge")
    assert price is not None
    assert (price.usd, price.region, price.date, price.refreshed) == (
        Decimal("44.7"),
        "us-west-2",
        TODAY,
        True,
    )
    assert price.source == "AWS Price List: AmazonEC2 TRN2, effective 2026-11-01"
    assert catalog.price_of("nat").usd == Decimal("0.05")
    assert catalog.price_of("nat-traffic").usd == Decimal("0.045")
    assert catalog.price_of("ebs-gp3").usd == Decimal("0.08")
    assert catalog.price_of("p5.48xlarge").usd == Decimal("98.32")
    assert catalog.prices()["trn1.32xlarge"].usd == Decimal("22")
    assert not catalog.price_of("trn1n.32xlarge").refreshed


def test_what_is_odd_or_empty_stays():
    changes = {one.item: one for one in refresh(asked, "us-west-2", (), TODAY)}
    assert changes["p4de.24xlarge"].line == "p4de.24xlarge: $4.00 is not believed; kept: $40.96"
    assert changes["g5.xlarge"].line == "g5.xlarge: several prices ($1.10, $1.20); kept: $1.006"
    assert changes["g6.48xlarge"].line == "g6.48xlarge: the answer cannot be read; kept: unknown"
    assert changes["trn1n.32xlarge"].line == "trn1n.32xlarge: not offered there; kept: $24.78"
    for item in ("p4de.24xlarge", "g5.xlarge", "g6.48xlarge", "trn1n.32xlarge"):
        assert item not in refreshed_prices()


def test_what_was_refreshed_before_stays_when_nothing_comes():
    list(refresh(asked, "us-west-2", ("trn2.48xlarge",), TODAY))
    list(refresh(asked, "us-west-2", ("trn1.32xlarge",), TODAY))
    with pytest.raises(RecipeError, match=r"no price came for region moon-1: .*: not offered there"):
        list(refresh(lambda query: [], "moon-1", ("trn2.48xlarge",), TODAY))
    assert set(refreshed_prices()) == {"trn1.32xlarge", "trn2.48xlarge"}


def test_an_unknown_item_and_a_broken_file_are_told():
    with pytest.raises(RecipeError, match=r"no item with a price is called 'trn1\.32xlarg'; did you mean"):
        list(refresh(asked, "us-west-2", ("trn1.32xlarg",), TODAY))
    list(refresh(asked, "us-west-2", ("nat",), TODAY))
    good = prices_file().read_text()
    for usd in ("NaN", "-5", "0"):
        prices_file().write_text(good.replace('"usd": "0.05"', f'"usd": "{usd}"'))
        with pytest.raises(StorageError, match=f"{usd} US dollars"):
            refreshed_prices()
    prices_file().write_text('{"format": 9}')
    with pytest.raises(StorageError, match=r"prices.json: these are no prices of kitae catalog refresh"):
        catalog.price_of("nat")


def test_only_the_first_tier_in_the_right_unit_counts():
    query = Query("s3", "AmazonS3", {}, "gb-month", "ByteHrs")
    tiers = [product("0.022", "GB-Mo", "ByteHrs", beginRange="51200"), product("0.023", "GB-Mo", "ByteHrs")]
    assert read(query, tiers).usd == Decimal("0.023")
    assert read(query, [product("5", "Requests", "ByteHrs")]).problem == "not offered there"
    assert read(query, [product("1", "GB-Mo", "Other")]).usd is None
    assert read(query, ['{"product": {"attributes": {"usagetype": "ByteHrs"}}}']).problem


class PriceList(BaseHTTPRequestHandler):
    """GetProducts of the Price List, a product a page."""

    status = 200

    def do_POST(self) -> None:
        wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["X-Amz-Target"] == "AWSPriceListService.GetProducts"
        filters = {one["Field"]: one["Value"] for one in wanted["Filters"]}
        products = ANSWERS.get(key_of(filters), [])
        page = int(wanted.get("NextToken", 0))
        answer: dict[str, object] = {"FormatVersion": "aws_v1", "PriceList": products[page : page + 1]}
        if page + 1 < len(products):
            answer["NextToken"] = str(page + 1)
        if self.status != 200:
            answer = {"__type": "AccessDeniedException", "message": "no"}
        body = json.dumps(answer).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Says nothing."""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[type[PriceList]]:
    pytest.importorskip("boto3")
    handler = type("Handler", (PriceList,), {})
    server = HTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    settings = {
        "AWS_ENDPOINT_URL_PRICING": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_CONFIG_FILE": str(home / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(home / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield handler
    server.shutdown()
    server.server_close()


def test_the_verb_asks_and_the_list_shows_it(endpoint: type[PriceList], capsys: pytest.CaptureFixture):
    assert main(["catalog", "refresh", "trn2.48xlarge", "nat", "p4de.24xlarge"]) == 0
    out = capsys.readouterr().out
    assert "trn2.48xlarge: $44.70 a hour, was unknown" in out
    assert "p4de.24xlarge: $4.00 is not believed; kept: $40.96" in out
    assert "2 of 3 prices of us-west-2: " in out
    assert main(["catalog", "list"]) == 0
    line = next(one for one in capsys.readouterr().out.splitlines() if one.startswith("trn2.48xlarge"))
    assert "44.70 (us-west-2, refreshed 20" in line
    assert main(["catalog", "show", "trn2.48xlarge", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["price"]
    assert shown["refreshed"] is True
    assert shown["source"].startswith("AWS Price List: AmazonEC2 TRN2")


def test_pages_are_all_read(endpoint: type[PriceList], capsys: pytest.CaptureFixture):
    assert main(["catalog", "refresh", "nat-traffic", "--json"]) == 0  # the second page has it
    (change,) = json.loads(capsys.readouterr().out)
    assert change["after"] == "0.045"


def test_a_refusal_is_one_line(endpoint: type[PriceList], capsys: pytest.CaptureFixture):
    endpoint.status = 400
    assert main(["catalog", "refresh", "nat"]) == 1
    err = capsys.readouterr().err
    assert "AWS refuses (AccessDeniedException); allow pricing:GetProducts" in err
    assert len(err.splitlines()) == 1


def test_without_credentials_or_boto3_there_is_one_line(
    endpoint: type[PriceList], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert main(["catalog", "refresh"]) == 1
    assert "there are no AWS credentials; run aws configure" in capsys.readouterr().err
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    assert main(["catalog", "refresh"]) == 1
    assert "boto3 is not installed; pip install 'kitae[aws]'" in capsys.readouterr().err


def test_nobody_answers(
    endpoint: type[PriceList], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setenv("AWS_ENDPOINT_URL_PRICING", "http://127.0.0.1:9")
    monkeypatch.setattr("kitae.catalog.price_api._ATTEMPTS", 1)
    assert main(["catalog", "refresh", "nat"]) == 1
    assert "AWS cannot be asked (Could not connect to the endpoint URL" in capsys.readouterr().err
