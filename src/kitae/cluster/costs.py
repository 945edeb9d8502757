"""What a cluster has cost so far, by thing and by day, and what it costs from now on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

from kitae.cluster.money import hourly
from kitae.cluster.spans import Span

_HOUR = Decimal(3600)


@dataclass(frozen=True)
class Line:
    """One thing, and what it has cost."""

    span: Span
    hours: Decimal
    usd_an_hour: Decimal | None
    """None: its price is unknown."""

    @property
    def usd(self) -> Decimal | None:
        """So far."""
        return None if self.usd_an_hour is None else self.hours * self.usd_an_hour


@dataclass(frozen=True)
class Bill:
    """What was paid until a moment."""

    lines: tuple[Line, ...]
    now: datetime

    @property
    def spent_usd(self) -> Decimal:
        """Of what has a price."""
        return _sum(line.usd for line in self.lines)

    @property
    def usd_an_hour(self) -> Decimal:
        """Of what is there now and has a price."""
        return _sum(line.usd_an_hour for line in self.lines if line.span.end is None)

    @property
    def since(self) -> datetime | None:
        """Since when; None where nothing was ever paid."""
        return min((line.span.begin for line in self.lines), default=None)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Items without a price, each once."""
        return tuple(dict.fromkeys(line.span.item for line in self.lines if line.usd_an_hour is None))

    @property
    def by_day(self) -> dict[date, Decimal]:
        """By days of UTC, in their order."""
        found: dict[date, Decimal] = {}
        for line in self.lines:
            for day, seconds in days_of(line.span.begin, line.span.end or self.now):
                usd = (line.usd_an_hour or Decimal(0)) * seconds / _HOUR
                found[day] = found.get(day, Decimal(0)) + usd
        return dict(sorted(found.items()))


def bill(spans: Iterable[Span], prices: Mapping[str, float], now: datetime) -> Bill:
    """What these cost until `now`."""
    return Bill(tuple(_line(span, prices, now) for span in spans), now)


def days_of(begin: datetime, end: datetime) -> Iterator[tuple[date, Decimal]]:
    """Days of UTC that a stretch of time touches, and how many seconds of it lie in each."""
    at = begin.astimezone(timezone.utc)
    while at < end:
        midnight = datetime.combine(at.date() + timedelta(days=1), time(), timezone.utc)
        yield at.date(), _seconds(at, min(midnight, end))
        at = midnight


def _line(span: Span, prices: Mapping[str, float], now: datetime) -> Line:
    rate = hourly(span.item, prices)
    usd = Decimal(0) if span.free else None if rate is None else rate * span.units
    return Line(span, _seconds(span.begin, span.end or now) / _HOUR, usd)


def _seconds(begin: datetime, end: datetime) -> Decimal:
    return max(Decimal(0), Decimal(str((end - begin).total_seconds())))


def _sum(found: Iterable[Decimal | None]) -> Decimal:
    return sum((one for one in found if one is not None), Decimal(0))
