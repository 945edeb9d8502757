"""AWS's Price List, asked through boto3 (extra `aws`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kitae.catalog.price_queries import Query
from kitae.errors import KitaeError

ENDPOINT_REGION = "us-east-1"
"""The Price List answers in a few regions, for all of them."""
_TIMEOUT_S = 20
_ATTEMPTS = 4

Ask = Callable[[Query], list[str]]


def open_price_list() -> Ask:
    """What asks for one item. Raises `KitaeError` without boto3 or credentials."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise KitaeError(
            "catalog refresh: boto3 is not installed; pip install 'kitae[aws]', or give prices with --price"
        ) from None
    with _told():
        session = boto3.Session()
        if session.get_credentials() is None:
            raise KitaeError(
                "catalog refresh: there are no AWS credentials; run aws configure, set AWS_PROFILE, or give "
                "prices with --price"
            )
        config = Config(
            connect_timeout=_TIMEOUT_S, read_timeout=_TIMEOUT_S, retries={"total_max_attempts": _ATTEMPTS}
        )
        client = session.client("pricing", region_name=ENDPOINT_REGION, config=config)
    return lambda query: list(_products(client, query))


def _products(client: Any, query: Query) -> Iterator[str]:
    """All pages of an answer."""
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in query.filters.items()]
    with _told():
        pages = client.get_paginator("get_products").paginate(
            ServiceCode=query.service, Filters=filters, FormatVersion="aws_v1"
        )
        for page in pages:
            yield from page["PriceList"]


@contextmanager
def _told() -> Iterator[None]:
    """AWS's errors in one line: expired or missing credentials, no permission, no network."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "?")
        hint = "allow pricing:GetProducts" if "Denied" in code else "look at your credentials"
        raise KitaeError(
            f"catalog refresh: AWS refuses ({code}); {hint}, or give prices with --price"
        ) from None
    except BotoCoreError as error:
        raise KitaeError(
            f"catalog refresh: AWS cannot be asked ({error}); look at the network and your credentials"
        ) from None
