"""What a cluster costs: by the hour while its queues are empty, with all of them full, and until its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from kitae.catalog import price_of
from kitae.cluster.resolved import makes_network
from kitae.cluster.schema import ClusterFile

HOURS_A_MONTH = Decimal(730)
_CENT = Decimal("0.01")


@dataclass(frozen=True)
class Rate:
    """Something that is paid by the hour."""

    item: str
    """As the catalogue and `prices` name it."""
    what: str
    count: Decimal
    """Units: machines, or GB."""
    least: Decimal
    """Units that are paid for while no job runs."""
    usd: Decimal | None
    """Of one unit for an hour; None: unknown."""

    @property
    def idle_usd(self) -> Decimal | None:
        """An hour while no job runs."""
        return None if self.usd is None else self.usd * self.least

    @property
    def full_usd(self) -> Decimal | None:
        """An hour with every queue full."""
        return None if self.usd is None else self.usd * self.count


@dataclass(frozen=True)
class Tariff:
    """All that is paid by the hour."""

    rates: tuple[Rate, ...]

    @property
    def idle_usd(self) -> Decimal:
        """An hour while no job runs, of what has a price."""
        return sum((rate.idle_usd or Decimal(0) for rate in self.rates), Decimal(0))

    @property
    def full_usd(self) -> Decimal:
        """An hour with every queue full, of what has a price."""
        return sum((rate.full_usd or Decimal(0) for rate in self.rates), Decimal(0))

    @property
    def unknown(self) -> tuple[str, ...]:
        """Items without a price, each once."""
        return tuple(dict.fromkeys(rate.item for rate in self.rates if rate.usd is None))


def tariff(file: ClusterFile) -> Tariff:
    """What a cluster of this file is paid for."""
    return Tariff((*_machines(file), *_disks(file), *_network(file)))


def price(file: ClusterFile, item: str) -> Decimal | None:
    """US dollars of a unit for an hour: the file's own, else the catalogue's; None where neither has it."""
    return hourly(item, file.prices)


def hourly(item: str, prices: Mapping[str, float]) -> Decimal | None:
    """US dollars of a unit for an hour, by given prices, else the catalogue's; None where neither has it."""
    given = prices.get(item)
    found = price_of(item)
    if given is None and found is None:
        return None
    usd = Decimal(str(given)) if given is not None else found.usd  # type: ignore[union-attr]
    monthly = item in _MONTHLY or (found is not None and found.unit == "gb-month")
    return usd / HOURS_A_MONTH if monthly else usd


_MONTHLY = ("fsx-scratch", "fsx-persistent", "ebs-gp3")
"""Items whose prices are of a GB for a month."""


def dollars(usd: Decimal) -> str:
    """As it is printed: `$1,234.50`."""
    return f"${usd.quantize(_CENT, ROUND_HALF_UP):,}"


def _machines(file: ClusterFile) -> Iterable[Rate]:
    head = file.head.instance
    yield Rate(head, "head node", Decimal(1), Decimal(1), price(file, head))
    for queue in file.queues:
        # A capacity block is paid when it is bought; its machines cost nothing more.
        usd = Decimal(0) if queue.capacity.kind == "capacity-block" else price(file, queue.instance)
        yield Rate(queue.instance, f"queue {queue.name}", Decimal(queue.max), Decimal(queue.min), usd)


def _disks(file: ClusterFile) -> Iterable[Rate]:
    usd = price(file, "ebs-gp3")
    full = sum(queue.max * queue.disk_gb for queue in file.queues) + file.head.disk_gb
    least = sum(queue.min * queue.disk_gb for queue in file.queues) + file.head.disk_gb
    yield Rate("ebs-gp3", "root disks", Decimal(full), Decimal(least), usd)
    if file.fsx is not None:
        item = "fsx-scratch" if file.fsx.type == "SCRATCH_2" else "fsx-persistent"
        size = Decimal(file.fsx.size_gb)
        yield Rate(item, "FSx for Lustre", size, size, price(file, item))


def _network(file: ClusterFile) -> Iterable[Rate]:
    one = Decimal(1)
    if makes_network(file):
        yield Rate("nat", "NAT gateway", one, one, price(file, "nat"))
        yield Rate(
            "public-ipv4", "addresses of NAT and head node", one * 2, one * 2, price(file, "public-ipv4")
        )
