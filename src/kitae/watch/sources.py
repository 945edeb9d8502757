"""The table of what tells of cores, and a machine's samples put together from it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

from kitae.watch import neuron_monitor
from kitae.watch.host import Host
from kitae.watch.neuron_monitor import NeuronMonitor
from kitae.watch.nvml import Nvml
from kitae.watch.samples import HostSample, ProcessSample, Sample
from kitae.watch.told import Teller, Told

Opener = Callable[[float], Teller | None]
"""Opens a source that tells once in so many seconds; None where this machine has none."""


def _neuron(period_s: float) -> Teller | None:
    program = neuron_monitor.find()
    return NeuronMonitor(program, period_s) if program else None


def _nvml(period_s: float) -> Teller | None:
    return Nvml.find()


SOURCES: dict[str, Opener] = {NeuronMonitor.name: _neuron, Nvml.name: _nvml}
"""By the name that samples carry. The machine itself, which is always there, is none of them."""
OF_BACKENDS = {
    "cpu": (),
    "cuda": (Nvml.name,),
    "xla": (NeuronMonitor.name,),
    "neuron": (NeuronMonitor.name,),
}
"""What a training's cores are told of by."""


class Source:
    """Takes samples of this machine. None of its failures is more than a note."""

    def __init__(self, host: Host, cores: Teller | None, node: str, notes: tuple[str, ...] = ()) -> None:
        self._host, self._cores, self._node, self._notes = host, cores, node, notes
        self._last = time.monotonic()

    def sample(self) -> Sample:
        """One over the time since the last."""
        here = _read(self._host)
        there = Told() if self._cores is None else _read(self._cores)
        begun, self._last = self._last, time.monotonic()
        return Sample(
            time=time.time(),
            period_s=round(self._last - begun, 3),
            source=self._host.name if self._cores is None else self._cores.name,
            node=self._node,
            host=_filled(here.host, there.host),
            cores=here.cores if self._cores is None else there.cores,
            devices=there.devices,
            processes=_joined(here.processes, there.processes),
            errors=there.errors,
            notes=tuple(dict.fromkeys((*self._notes, *here.notes, *there.notes))),
        )

    def close(self) -> None:
        """End what was started for it."""
        if self._cores is not None:
            self._cores.close()


def open_source(
    period_s: float,
    folder: Path = Path(),
    *,
    backend: str | None = None,
    root: int | None = None,
    node: str | None = None,
) -> Source:
    """What tells of this machine: of the cores that a backend computes on, or of the first kind that it has.

    `folder` lies on the disk that is told of; `root` is the process of the training, or of its ranks' parent.
    """
    host, name = Host(folder, root), node or socket.gethostname()
    names = OF_BACKENDS.get(backend or "", tuple(SOURCES))
    notes = []
    for one in names:
        try:
            found = SOURCES[one](period_s)
        except Exception as error:  # what libraries of drivers raise is not to be known
            notes.append(f"{one}: {error}")
            continue
        if found is not None:
            return Source(host, found, name)
    if backend and names:
        notes.append(f"there is no {' or '.join(names)} here: the cores are those of the CPU")
    return Source(host, None, name, tuple(notes))


def _read(teller: Teller) -> Told:
    try:
        return teller.read()
    except Exception as error:  # what libraries of drivers raise is not to be known
        return Told(notes=(f"{teller.name}: {error or type(error).__name__}",))


def _filled(one: HostSample, other: HostSample) -> HostSample:
    """The first, with what it lacks from the second."""
    return HostSample(
        **{
            each.name: getattr(one if getattr(one, each.name) is not None else other, each.name)
            for each in fields(HostSample)
        }
    )


def _joined(here: tuple[ProcessSample, ...], there: tuple[ProcessSample, ...]) -> tuple[ProcessSample, ...]:
    """Processes by number: their CPU as the system tells it, memory and cores as the devices' tool does."""
    on_devices = {one.pid: one for one in there}
    both = [
        replace(
            one,
            tag=other.tag or one.tag,
            memory_used_bytes=other.memory_used_bytes,
            cores=other.cores,
        )
        if (other := on_devices.pop(one.pid, None))
        else (replace(one, memory_used_bytes=None) if there else one)
        for one in here
    ]
    return (*both, *on_devices.values())
