"""`limits.max_cost_usd` as a promise: the switch is set to the sooner of the end that was asked for and the
moment at which a full fleet would have used the money up.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from kitae.cluster.moments import shown
from kitae.cluster.money import dollars

_LONG = timedelta(days=3650)


@dataclass(frozen=True)
class Budget:
    """What may be spent, what was, and how fast a full fleet spends the rest."""

    most_usd: Decimal
    spent_usd: Decimal
    full_usd: Decimal
    """An hour with every queue full."""

    @property
    def left_usd(self) -> Decimal:
        """Never below 0."""
        return max(Decimal(0), self.most_usd - self.spent_usd)

    def used_up(self, now: datetime) -> datetime:
        """When a full fleet has spent the rest; far off where it costs nothing."""
        if self.full_usd <= 0:
            return now + _LONG
        seconds = self.left_usd / self.full_usd * 3600
        # Down to the second, never later.
        return now + min(_LONG, timedelta(seconds=int(seconds)))

    def end(self, wanted: datetime, now: datetime) -> datetime:
        """The sooner of the two."""
        return min(wanted, self.used_up(now))

    def cost_until(self, end: datetime, now: datetime) -> Decimal:
        """What all will have cost then, at most."""
        hours = Decimal(str(max(0.0, (end - now).total_seconds()))) / 3600
        return self.spent_usd + self.full_usd * hours

    def words(self, wanted: datetime, now: datetime) -> str:
        """Why the end is what it is."""
        money = f"{dollars(self.spent_usd)} of {dollars(self.most_usd)} are spent"
        end = self.end(wanted, now)
        if end < wanted:
            return (
                f"{money}, and with every queue full ({dollars(self.full_usd)} an hour) the rest is used up "
                f"at {shown(end)}, before {shown(wanted)}: that is when AWS ends it"
            )
        most = dollars(self.cost_until(end, now))
        return f"{money}; with every queue full until {shown(end)} it is at most {most}"
