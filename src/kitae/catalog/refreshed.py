"""Prices that were asked for: a file of this user's, with the day and the source of each."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kitae.errors import StorageError
from kitae.storage.files import replace_file
from kitae.storage.state import state_folder

FORMAT = 1


@dataclass(frozen=True)
class Price:
    """What one unit costs."""

    item: str
    usd: Decimal
    unit: str
    """hour, gb (passed through) or gb-month."""
    region: str
    date: datetime.date
    source: str
    refreshed: bool = False
    """Whether it was asked for by this user, or came with kitae."""


def prices_file() -> Path:
    """Where they lie."""
    return state_folder() / "prices.json"


def refreshed_prices() -> Mapping[str, Price]:
    """By item; none where nobody has asked. Raises `StorageError` for a file that is not theirs."""
    path = prices_file()
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        return MappingProxyType({})
    return _read(path, changed)


@lru_cache(maxsize=4)
def _read(path: Path, changed: int) -> Mapping[str, Price]:
    """`changed` is when the file was: read once for each time it is written."""
    try:
        entries = json.loads(path.read_text("utf-8"))
        if entries["format"] != FORMAT:
            raise ValueError("format")
        return MappingProxyType({entry["item"]: _price(entry) for entry in entries["prices"]})
    except (OSError, ValueError, KeyError, TypeError, InvalidOperation) as error:
        raise StorageError(
            f"{path}: these are no prices of kitae catalog refresh ({error}); delete it, and refresh again"
        ) from None


def _price(entry: Mapping[str, Any]) -> Price:
    usd = Decimal(entry["usd"])
    if not usd.is_finite() or usd <= 0:
        raise ValueError(f"{usd} US dollars")
    return Price(
        item=entry["item"],
        usd=usd,
        unit=entry["unit"],
        region=entry["region"],
        date=datetime.date.fromisoformat(entry["date"]),
        source=entry["source"],
        refreshed=True,
    )


def write_refreshed(prices: Mapping[str, Price]) -> Path:
    """Write all of them; where they lie then. Raises `StorageError`."""
    path = prices_file()
    entries = [{**asdict(one), "usd": str(one.usd), "date": str(one.date)} for one in prices.values()]
    for entry in entries:
        del entry["refreshed"]
    text = json.dumps({"format": FORMAT, "prices": entries}, indent=2)
    replace_file(path, (text + "\n").encode())
    return path
