"""Machines that can be rented, their chips, and the dated prices of what is paid for."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from types import MappingProxyType
from typing import Any

from kitae.catalog.reading import read_table, unknown
from kitae.catalog.refreshed import Price, refreshed_prices
from kitae.errors import RecipeError

GIB = 1 << 30


@dataclass(frozen=True)
class Chip:
    """An accelerator chip; figures are of one core: of what a process of a training takes one."""

    name: str
    cores: int
    """Of one chip."""
    memory_gib: float
    memory_gbs: float
    """Memory bandwidth, 10^9 bytes a second."""
    peak_tflops: Mapping[str, float]
    """By dtype of the products: bf16, fp32."""
    link_gbs: float
    """Of a chip to its neighbours, 10^9 bytes a second."""
    bus_gbs: float
    """Bus bandwidth of a collective inside an instance, 10^9 bytes a second and core."""
    floor_us: float
    """Time of an empty collective, microseconds."""
    date: datetime.date
    source: str

    @property
    def memory_bytes(self) -> int:
        """Of one core."""
        return round(self.memory_gib * GIB)


@dataclass(frozen=True)
class Instance:
    """A machine that can be rented."""

    name: str
    vcpus: int
    host_gib: float
    network_gbps: float
    """Of the whole machine to others, 10^9 bits a second."""
    efa: bool
    """Whether it has the network interface that collectives between machines need."""
    backend: str
    """What trains on it: xla, neuron, cuda or cpu."""
    date: datetime.date
    source: str
    chip: Chip | None = None
    """None: a head node, on which nothing is trained."""
    chips: int = 0
    zones: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        """Processes that a training has on it."""
        return self.chips * self.chip.cores if self.chip is not None else 0

    @property
    def host_bytes(self) -> int:
        """Memory of the host."""
        return round(self.host_gib * GIB)


@cache
def chips() -> Mapping[str, Chip]:
    """Every chip by name."""
    table = read_table("instances")["chips"]
    return MappingProxyType({name: Chip(name=name, **entry) for name, entry in table.items()})


@cache
def instances() -> Mapping[str, Instance]:
    """Every instance by name."""
    table = read_table("instances")["instances"]
    return MappingProxyType({name: _instance(name, entry) for name, entry in table.items()})


def _instance(name: str, entry: Mapping[str, Any]) -> Instance:
    chip = chips()[entry["chip"]] if "chip" in entry else None
    return Instance(name=name, **{**entry, "chip": chip, "zones": tuple(entry.get("zones", ()))})


@dataclass(frozen=True)
class Item:
    """Something else that is paid for."""

    name: str
    unit: str
    what: str


@cache
def items() -> Mapping[str, Item]:
    """What is paid for beside machines, by name."""
    table = read_table("instances")["items"]
    return MappingProxyType({name: Item(name=name, **entry) for name, entry in table.items()})


def prices() -> Mapping[str, Price]:
    """Every known price by what it is of: what was refreshed, else what came with kitae."""
    return MappingProxyType({**_packaged(), **refreshed_prices()})


@cache
def _packaged() -> Mapping[str, Price]:
    table = read_table("instances")["prices"]
    return MappingProxyType(
        {entry["item"]: Price(**{**entry, "usd": Decimal(entry["usd"])}) for entry in table}
    )


def instance(name: str) -> Instance:
    """The instance `name`; raises `RecipeError` with the nearest names and the list."""
    if name not in instances():
        raise RecipeError(unknown("instance", name, instances()))
    return instances()[name]


def price_of(item: str) -> Price | None:
    """What `item` costs; None where no source is known."""
    return refreshed_prices().get(item) or _packaged().get(item)
