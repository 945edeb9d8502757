"""Neuron devices as `neuron-ls -j`, the driver's files and /dev tell of them.

Written from the documented schema (aws-neuron-sdk neuron-ls.rst, neuron-sysfs-user-guide.rst). Older tools
leave fields out and newer ones add some: what is missing is unknown, never an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SYSFS = Path("/sys/devices/virtual/neuron_device")
DEVICES = Path("/dev")
MODULE = Path("/sys/module/neuron")


@dataclass(frozen=True)
class Holder:
    """A process that has a device."""

    pid: int
    command: str = ""
    runtime: str | None = None
    """Version of its runtime; empty where it has none, as tools; None where that is not told."""


@dataclass(frozen=True)
class Device:
    """A Neuron device, as far as it is told."""

    number: int
    cores: int | None = None
    """Physical cores."""
    logical: int | None = None
    """How many physical cores are one logical core; None where a core is a core."""
    memory_bytes: int | None = None
    core_ids: tuple[int, ...] = ()
    holders: tuple[Holder, ...] = ()
    numa_node: str = ""

    @property
    def ranks(self) -> int | None:
        """Processes of a training that it has room for."""
        return None if self.cores is None else self.cores // max(1, self.logical or 1)


def parse_neuron_ls(text: str) -> list[Device]:
    """The devices of `neuron-ls -j`. ValueError where that is none."""
    found = json.loads(text[_begin(text) :])
    entries = found if isinstance(found, list) else _inside(found)
    return [_device(one, index) for index, one in enumerate(entries) if isinstance(one, Mapping)]


def _begin(text: str) -> int:
    """Where the first list or object begins: some tools put a line about the machine before it."""
    return min((place for bracket in "[{" if (place := text.find(bracket)) >= 0), default=0)


def _inside(found: Any) -> Sequence[Any]:
    """The list in an object: some tools put it under a name."""
    lists = [one for one in found.values() if isinstance(one, list)] if isinstance(found, Mapping) else []
    if len(lists) != 1:
        raise ValueError("no list of devices")
    return list(lists[0])


def _device(entry: Mapping[str, Any], index: int) -> Device:
    number = _whole(entry.get("neuron_device"))
    return Device(
        index if number is None else number,
        _whole(entry.get("nc_count")),
        _whole(entry.get("logical_neuroncore_config")),
        _whole(entry.get("memory_size")),
        tuple(one for one in map(_whole, _listed(entry, "neuroncore_ids")) if one is not None),
        tuple(
            _holder(one)
            for one in _listed(entry, "neuron_processes")
            if isinstance(one, Mapping) and _whole(one.get("pid"))
        ),
        str(entry.get("numa_node") or ""),
    )


def _listed(entry: Mapping[str, Any], name: str) -> list[Any]:
    found = entry.get(name)
    return found if isinstance(found, list) else []


def _holder(entry: Mapping[str, Any]) -> Holder:
    told = entry.get("neuron_runtime_version")
    runtime = None if told is None else "" if told in ("NA", "N/A", "") else str(told)
    return Holder(int(entry["pid"]), str(entry.get("command") or ""), runtime)


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def device_files(folder: Path | None = None) -> list[int]:
    """Numbers of the devices that the driver shows: /dev/neuron0 and so on."""
    names = (one.name.removeprefix("neuron") for one in (folder or DEVICES).glob("neuron*"))
    return sorted(int(name) for name in names if name.isdigit())


def sysfs_devices(folder: Path | None = None) -> list[Device]:
    """The devices of the driver's own files, in both places: driver 2.31 moved some."""
    found = []
    for place in sorted((folder or SYSFS).glob("neuron*")):
        if place.name.removeprefix("neuron").isdigit():
            number = int(place.name.removeprefix("neuron"))
            cores = _whole(_read(place / "core_count") or _read(place / "info" / "core_count"))
            if cores is None:
                cores = len(list(place.glob("neuron_core*"))) or None
            found.append(Device(number, cores))
    return sorted(found, key=lambda one: one.number)


def architecture(folder: Path | None = None) -> str:
    """What the driver calls the first device (instance type or device name); empty where it says nothing."""
    place = (folder or SYSFS) / "neuron0" / "info" / "architecture"
    return _read(place / "instance_type") or _read(place / "device_name") or ""


def driver_version(folder: Path | None = None) -> str | None:
    """Version of the loaded driver, `?` where it does not say; None where none is loaded."""
    place = folder or MODULE
    return (_read(place / "version") or "?") if place.is_dir() else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
