"""`kitae cluster status`: what stands of a cluster, what it costs now, and when it ends, by the account."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from kitae.cluster.aws import Account
from kitae.cluster.kinds import Prices
from kitae.cluster.leftovers import Leftover, scan, total
from kitae.cluster.money import dollars
from kitae.cluster.names import Names
from kitae.cluster.stacks import Stack, find_stack


@dataclass(frozen=True)
class Status:
    """What the account has of a cluster."""

    stacks: dict[str, Stack | None]
    """By what they are: switch, network, cluster."""
    things: tuple[Leftover, ...]

    @property
    def until(self) -> str | None:
        """When AWS ends it; None without a switch."""
        switch = self.stacks["switch"]
        return None if switch is None else switch.outputs.get("Until")

    @property
    def usd_an_hour(self) -> Decimal:
        """Of what has a price."""
        return total(list(self.things))


def status_of(account: Account, name: str, prices: Prices | None = None) -> Status:
    """Look at a cluster. Raises `ClusterError`."""
    names = Names(name)
    own = {"switch": names.switch_stack, "network": names.network_stack, "cluster": names.cluster_stack}
    stacks = {what: find_stack(account, stack) for what, stack in own.items()}
    things = [one for one in scan(account, name, prices) if one.kind.name != "stack"]
    return Status(stacks, tuple(things))


def status_lines(name: str, found: Status, now: datetime) -> Iterator[str]:
    """As it is printed."""
    for what, stack in found.stacks.items():
        state = "is not there" if stack is None else f"{stack.status} (stack {stack.name})"
        yield f"{what:8}  {state}"
    for one in found.things:
        price = "price unknown" if one.usd is None else f"{dollars(one.usd)} an hour"
        yield f"{one.kind.name:16}  {one.thing.id}  {one.thing.detail}  {price}".rstrip()
    yield f"together {dollars(found.usd_an_hour)} an hour, where the price is known"
    yield from _end(name, found, now)


def _end(name: str, found: Status, now: datetime) -> Iterator[str]:
    if found.until is not None:
        end = datetime.fromisoformat(found.until.replace("Z", "+00:00"))
        left = max(Decimal(0), Decimal(str((end - now).total_seconds() / 3600)))
        usd = dollars(found.usd_an_hour * left)
        yield f"AWS ends it from {found.until} on; until then it costs {usd} as it is now"
    elif found.things:
        yield f"nothing ends it by itself: no switch is set; kitae cluster down {name} takes it away"
