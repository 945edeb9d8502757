"""Prices renewed from AWS's Price List; what cannot be had, or looks wrong, stays as it was."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from kitae.catalog.instances import price_of
from kitae.catalog.price_api import Ask
from kitae.catalog.price_queries import Query, queries, read
from kitae.catalog.reading import unknown
from kitae.catalog.refreshed import Price, refreshed_prices, write_refreshed
from kitae.errors import RecipeError

ODD_FACTOR = 5
"""A price that is so many times the known one, or as small a part of it, is not believed."""


@dataclass(frozen=True)
class Change:
    """What became of one item."""

    item: str
    unit: str
    before: Decimal | None
    after: Decimal | None
    """None: it stayed as it was."""
    problem: str = ""

    @property
    def line(self) -> str:
        """In words."""
        old = "unknown" if self.before is None else f"${self.before}"
        if self.after is None:
            return f"{self.item}: {self.problem}; kept: {old}"
        same = self.before is not None and self.before == self.after
        return f"{self.item}: ${self.after} a {self.unit}" + ("" if same else f", was {old}")


def refresh(ask: Ask, region: str, items: Sequence[str], today: datetime.date) -> Iterator[Change]:
    """Ask for items, or for all, and write what was answered.

    Raises `RecipeError` for an unknown item, and where nothing at all was answered.
    """
    asked = {query.item: query for query in queries(region)}
    for item in items:
        if item not in asked:
            raise RecipeError(unknown("item with a price", item, asked))
    kept = dict(refreshed_prices())
    changes = []
    for query in [asked[item] for item in items] or asked.values():
        change, price = _renewed(ask, query, region, today)
        changes.append(change)
        if price is not None:
            kept[query.item] = price
    if all(change.after is None for change in changes):
        raise RecipeError(
            f"catalog refresh: no price came for region {region}: {changes[0].line}; is it a region such as "
            "us-west-2 that has these machines?"
        )
    write_refreshed(kept)
    yield from changes


def _renewed(ask: Ask, query: Query, region: str, today: datetime.date) -> tuple[Change, Price | None]:
    known = price_of(query.item)
    before = None if known is None else known.usd
    answer = read(query, ask(query))
    if answer.usd is None:
        return Change(query.item, query.unit, before, None, answer.problem), None
    if before is not None and not before / ODD_FACTOR < answer.usd < before * ODD_FACTOR:
        return Change(query.item, query.unit, before, None, f"${answer.usd} is not believed"), None
    price = Price(query.item, answer.usd, query.unit, region, today, answer.source, refreshed=True)
    return Change(query.item, query.unit, before, answer.usd), price
