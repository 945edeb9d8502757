"""The Neuron SDK by release: which packages belong together, and how long training is supported."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from packaging.version import InvalidVersion, Version

from kitae.catalog.reading import read_table

TRAINING = ("torch-neuronx", "neuronx-cc", "libneuronxla")
"""Packages without which nothing is trained through torch-xla; the others may be newer."""


@dataclass(frozen=True)
class Release:
    """Packages that were published together."""

    name: str
    torch: tuple[str, ...]
    """Versions that torch-neuronx was built for; none where it no longer belongs to the release."""
    python: tuple[str, str]
    """Oldest and newest."""
    packages: Mapping[str, str]


@dataclass(frozen=True)
class Support:
    """Of training on Trn1."""

    best: str
    last: str
    source: str
    date: datetime.date


@dataclass(frozen=True)
class Machine:
    """What the collectives of a machine type allow."""

    prefix: str
    workers: tuple[int, ...]
    """How many processes may train together on one machine."""
    efa_interfaces: int
    source: str


@cache
def releases() -> tuple[Release, ...]:
    """From the oldest."""
    entries = read_table("neuron")["releases"]
    return tuple(
        Release(one["name"], tuple(one["torch"]), tuple(one["python"]), one["packages"]) for one in entries
    )


def support() -> Support:
    """Which releases train on Trn1."""
    table = read_table("neuron")
    return Support(**table["support"], date=table["date"])


def machine_of(instance: str) -> Machine | None:
    """What is known of a machine type; None for others."""
    for one in read_table("neuron")["machines"]:
        if instance.startswith(one["prefix"]):
            return Machine(**{**one, "workers": tuple(one["workers"])})
    return None


def native_releases() -> Mapping[str, list[str]]:
    """Versions of TorchNeuron by release."""
    table: Mapping[str, list[str]] = read_table("neuron")["native"]["releases"]
    return table


def release(name: str) -> Release:
    """The release of this name."""
    return next(one for one in releases() if one.name == name)


@dataclass(frozen=True)
class Place:
    """Where a package's version stands among the releases."""

    at: str | None
    """The release whose package has the same telling numbers."""
    after: str | None = None
    """Else the newest one with an older package."""

    def __str__(self) -> str:
        if self.at is not None:
            return self.at
        return f"after {self.after}" if self.after is not None else f"before {releases()[0].name}"


def place_of(package: str, version: str) -> Place | None:
    """Which release a version is of; None for one that cannot be read, or a package that is not listed."""
    found = _numbers(package, version)
    listed = [
        (one.name, pinned)
        for one in releases()
        if (pinned := _numbers(package, one.packages.get(package, ""))) is not None
    ]
    if found is None or not listed:
        return None
    same = [name for name, pinned in listed if pinned == found]
    older = [name for name, pinned in listed if pinned < found]
    return Place(same[-1]) if same else Place(None, older[-1] if older else None)


def is_after(place: Place, name: str) -> bool:
    """Whether it stands after the release `name`."""
    names = [one.name for one in releases()]
    if place.at is not None:
        return names.index(place.at) > names.index(name)
    return place.after is not None and names.index(place.after) >= names.index(name)


def torch_of(version: str) -> str | None:
    """The torch that a torch-neuronx of the XLA kind is for: 2.9 of 2.9.0.2.12.22436."""
    parts = version.partition("+")[0].split(".")
    return ".".join(parts[:2]) if len(parts) > 4 else None


def _numbers(package: str, version: str) -> tuple[int, ...] | None:
    """The numbers that change with a release: the first two, of libneuronxla three."""
    public = version.partition("+")[0].split("-")[0]
    if package == "torch-neuronx" and len(public.split(".")) > 4:
        public = ".".join(public.split(".")[3:])
    try:
        release = Version(public).release
    except InvalidVersion:
        return None
    count = 3 if package == "libneuronxla" else 2
    return release[:count] if len(release) >= count else None
