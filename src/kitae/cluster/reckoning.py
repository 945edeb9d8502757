"""`kitae cluster cost`: what was spent and what is to come, together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from kitae.cluster.aws import Account
from kitae.cluster.budget import Budget
from kitae.cluster.costs import Bill, Line, bill
from kitae.cluster.extend import Ends, ends_of
from kitae.cluster.kept import known
from kitae.cluster.moments import shown
from kitae.cluster.money import HOURS_A_MONTH, Tariff, dollars, tariff
from kitae.cluster.names import Names
from kitae.cluster.spans import spans_of
from kitae.cluster.stacks import find_stack


@dataclass(frozen=True)
class Reckoning:
    """All about a cluster's money."""

    name: str
    region: str
    bill: Bill
    tariff: Tariff
    budget: Budget
    ends: Ends | None

    @property
    def now(self) -> datetime:
        """When it was asked."""
        return self.bill.now


def reckon(account: Account, name: str, now: datetime) -> Reckoning:
    """Ask the account. Raises `ClusterError`."""
    file = known(account, name)
    ends = ends_of(find_stack(account, Names(name).switch_stack))
    paid, rates = bill(spans_of(account, file, now), file.prices, now), tariff(file)
    most = ends.most_usd if ends is not None and ends.most_usd is not None else None
    limit = Decimal(str(file.limits.max_cost_usd)) if most is None else most
    budget = Budget(limit, paid.spent_usd, rates.full_usd)
    return Reckoning(name, account.region, paid, rates, budget, ends)


def lines(found: Reckoning) -> Iterator[str]:
    """As it is printed."""
    since = found.bill.since
    yield f"{found.name} in {found.region}, " + (
        "for which nothing was paid yet" if since is None else f"since {shown(since)}"
    )
    yield from _table(found.bill)
    for day, usd in found.bill.by_day.items():
        yield f"{day}  {dollars(usd)}"
    yield (
        f"now {dollars(found.bill.usd_an_hour)} an hour; with every queue full "
        f"{dollars(found.tariff.full_usd)}; a month of what stays on while idle "
        f"{dollars(found.tariff.idle_usd * HOURS_A_MONTH)}"
    )
    budget = found.budget
    spent = f"{dollars(budget.spent_usd)} of {dollars(budget.most_usd)}"
    yield f"{spent} are spent, {dollars(budget.left_usd)} left"
    yield from _end(found)
    unknown = tuple(dict.fromkeys((*found.bill.unknown, *found.tariff.unknown)))
    if unknown:
        yield f"not counted, as their prices are not known: {', '.join(unknown)}"


def as_json(found: Reckoning) -> dict[str, Any]:
    """All numbers, each thing by itself; dollars as text, without rounding."""
    return {
        "cluster": found.name,
        "region": found.region,
        "at": found.now.isoformat(),
        "spent_usd": str(found.bill.spent_usd),
        "budget_usd": str(found.budget.most_usd),
        "left_usd": str(found.budget.left_usd),
        "usd_an_hour": str(found.bill.usd_an_hour),
        "usd_an_hour_full": str(found.tariff.full_usd),
        "usd_a_month_idle": str(found.tariff.idle_usd * HOURS_A_MONTH),
        "until": None if found.ends is None else found.ends.until.isoformat(),
        "by_day": {str(day): str(usd) for day, usd in found.bill.by_day.items()},
        "things": [_thing(line) for line in found.bill.lines],
        "unknown": list(found.bill.unknown),
    }


def _thing(line: Line) -> dict[str, Any]:
    span = line.span
    return {
        "what": span.what,
        "id": span.id,
        "item": span.item,
        "units": str(span.units),
        "begin": span.begin.isoformat(),
        "end": None if span.end is None else span.end.isoformat(),
        "hours": str(line.hours),
        "usd": None if line.usd is None else str(line.usd),
        "note": span.note,
    }


def _table(paid: Bill) -> list[str]:
    """Things of one kind together: hundreds of machines may have come and gone."""
    groups: dict[tuple[str, str, str], list[Line]] = {}
    for line in paid.lines:
        groups.setdefault((line.span.what, line.span.item, line.span.note), []).append(line)
    rows = [("what", "things", "hours", "so far")]
    for (what, item, note), some in groups.items():
        usd = [line.usd for line in some if line.usd is not None]
        total = dollars(sum(usd, Decimal(0))) if usd else "unknown"
        hours = sum((line.hours for line in some), Decimal(0))
        about = f" ({note})" if note else ""
        rows.append((f"{what}: {item}{about}", str(len(some)), f"{hours:.1f}", total))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [f"{a:{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}" for a, b, c, d in rows]


def _end(found: Reckoning) -> Iterator[str]:
    if found.ends is None:
        yield f"nothing ends it by itself: no switch is set; kitae cluster down {found.name} takes it away"
        return
    until, spent = found.ends.until, found.bill.spent_usd
    hours = Decimal(str(max(0.0, (until - found.now).total_seconds()))) / 3600
    as_now = dollars(spent + found.bill.usd_an_hour * hours)
    most = dollars(found.budget.cost_until(until, found.now))
    yield f"AWS ends it at {shown(until)}: by then it is {as_now} as it is now, {most} with every queue full"
