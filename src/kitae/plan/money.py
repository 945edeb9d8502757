"""What a training costs: hours times prices, in decimals, to the cent.

AWS counts whole seconds, so hours are rounded to them, and shown like that: each line can be computed again
from what it says. A month has 730 hours, as AWS counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal

from kitae.catalog import price_of
from kitae.errors import RecipeError

HOUR = 3600
HOURS_A_MONTH = Decimal(730)
CENT = Decimal("0.01")
_DIGITS = Context(prec=60)
MOST_NODES = {"create": 0, "prepare": 1, "teardown": 0}
"""Of phases that not all nodes are rented for."""


@dataclass(frozen=True)
class Rent:
    """What is rented beside the nodes."""

    head: str | None = None
    """Instance of the head node."""
    fsx_gb: int = 0
    fsx_type: str = "fsx-scratch"
    """What of: an item of the catalogue."""
    ebs_gb: int = 0
    """Of all nodes together."""
    nat: bool = False
    nat_gb: int = 0
    """Gigabytes that come in through the NAT gateway."""
    prices: Mapping[str, Decimal] = field(default_factory=dict)
    """By item, where they are not the catalogue's."""


@dataclass(frozen=True)
class Line:
    """One line of the bill."""

    item: str
    how: str
    """The product in words."""
    usd: Decimal | None
    """None: its price is unknown."""


@dataclass(frozen=True)
class Bill:
    """All lines."""

    lines: tuple[Line, ...]

    @property
    def unknown(self) -> tuple[str, ...]:
        """Items without a price."""
        return tuple(line.item for line in self.lines if line.usd is None)

    @property
    def total(self) -> Decimal | None:
        """US dollars; None when a price is unknown."""
        return None if self.unknown else self.known

    @property
    def known(self) -> Decimal:
        """US dollars of the lines whose price is known."""
        return sum((line.usd for line in self.lines if line.usd is not None), Decimal(0))


def bill(instance: str, nodes: int, hours: Mapping[str, float], rent: Rent | None = None) -> Bill:
    """What `nodes` of an instance cost for the hours of each phase, such as compile, train and idle."""
    rent = rent or Rent()
    price = price_in(instance, rent)
    lengths = {phase: round(length * HOUR) for phase, length in hours.items()}
    rented = {phase: min(nodes, MOST_NODES.get(phase, nodes)) for phase in hours}
    lines = [
        _line(
            f"{instance}, {phase}",
            price,
            "hour",
            Decimal(rented[phase] * length) / HOUR,
            f"{rented[phase]} x {clock(length)}",
        )
        for phase, length in lengths.items()
        if rented[phase]
    ]
    return Bill((*lines, *_beside(rent, sum(lengths.values()))))


def clock(seconds: int) -> str:
    """Hours, minutes and seconds."""
    return f"{seconds // HOUR}:{seconds // 60 % 60:02}:{seconds % 60:02} h"


def _beside(rent: Rent, seconds: int) -> list[Line]:
    hours, time = Decimal(seconds) / HOUR, clock(seconds)
    months = hours / HOURS_A_MONTH
    stored = f"GB x {time} / 730"
    items = [
        (rent.head, "hour", hours, time),
        (rent.fsx_type if rent.fsx_gb else None, "GB-month", rent.fsx_gb * months, f"{rent.fsx_gb} {stored}"),
        ("ebs-gp3" if rent.ebs_gb else None, "GB-month", rent.ebs_gb * months, f"{rent.ebs_gb} {stored}"),
        ("nat" if rent.nat else None, "hour", hours, time),
        ("nat-traffic" if rent.nat_gb else None, "GB", Decimal(rent.nat_gb), f"{rent.nat_gb} GB"),
    ]
    return [_line(item, price_in(item, rent), unit, amount, how) for item, unit, amount, how in items if item]


def beside_an_hour(rent: Rent) -> Decimal | None:
    """US dollars an hour of what is rented beside the nodes; None where a price is unknown."""
    parts = [
        (rent.head, Decimal(1)),
        (rent.fsx_type if rent.fsx_gb else None, rent.fsx_gb / HOURS_A_MONTH),
        ("ebs-gp3" if rent.ebs_gb else None, rent.ebs_gb / HOURS_A_MONTH),
        ("nat" if rent.nat else None, Decimal(1)),
    ]
    prices = [(price_in(item, rent), amount) for item, amount in parts if item]
    known = [price * amount for price, amount in prices if price is not None]
    return sum(known, Decimal(0)) if len(known) == len(prices) else None


def price_in(item: str, rent: Rent) -> Decimal | None:
    """US dollars of one unit: as given, else the catalogue's; None where it is unknown."""
    if item in rent.prices:
        return rent.prices[item]
    known = price_of(item)
    return None if known is None else known.usd


def _line(item: str, price: Decimal | None, unit: str, amount: Decimal, how: str) -> Line:
    if price is None:
        return Line(item, f"{how}; price unknown: give --price", None)
    return Line(item, f"{how} x ${price} a {unit}", cents(price * amount))


def cents(usd: Decimal) -> Decimal:
    """Rounded to the cent."""
    return _rounded(usd, CENT)


def per_million_tokens(usd: Decimal, tokens: int) -> Decimal:
    """US dollars for a million tokens, to a hundredth of a cent."""
    return _rounded(usd * 1_000_000 / tokens, Decimal("0.0001"))


def _rounded(number: Decimal, step: Decimal) -> Decimal:
    return number.quantize(step, ROUND_HALF_UP, _DIGITS)


def refuse_above(total: Decimal | None, limit: Decimal | None) -> None:
    """Raise `RecipeError` for a bill above the limit, or one that cannot be summed."""
    if limit is None:
        return
    if total is None:
        raise RecipeError("--max-cost: a price is unknown, so the cost is; give it with --price ITEM=USD")
    if total > limit:
        raise RecipeError(
            f"--max-cost: this is planned to cost ${total}, which is more than ${limit}; "
            "shorten training.duration, take another instance, or raise the limit"
        )
