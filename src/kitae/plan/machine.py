"""Where a training is planned: nodes of one kind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
import psutil

from kitae.catalog import Instance

LOCAL = "this machine"


class Measured(Protocol):
    """Knows a machine by what was measured there."""

    def step_time(self, work: Any, machine: Machine) -> Any:
        """`StepTime` of a `Work`."""
        ...

    def assumptions(self, work: Any) -> Iterator[str]:
        """What that rests on, a line each."""
        ...


@dataclass(frozen=True)
class Machine:
    """Nodes of one kind, as a plan sees them. Bandwidths in bytes a second."""

    name: str
    nodes: int
    devices: int
    """Processes of one node."""
    device_bytes: int
    """Memory of one process."""
    host_bytes: int
    """Memory of a node's host."""
    shared_memory: bool
    """Whether the processes share the host's memory: a CPU."""
    peak: dict[str, float]
    """FLOP/s of a process, by dtype of the products."""
    memory_bandwidth: float
    """Of a process."""
    bus_bandwidth: float
    """Of a collective inside a node, for each process."""
    network_bandwidth: float
    """Of a node to others."""
    floor_s: float
    """Of an empty collective."""
    instance: Instance | None = None
    save_bytes_per_s: float | None = None
    """What its disk takes of a checkpoint, with hashes, where that was measured."""
    local: Measured | None = None
    """What was measured of it and learned from trainings on it; None where nothing was."""


def rented(instance: Instance, nodes: int) -> Machine:
    """Nodes of the catalogue."""
    chip = instance.chip
    assert chip is not None, "a head node trains nothing"
    return Machine(
        name=instance.name,
        nodes=nodes,
        devices=instance.devices,
        device_bytes=chip.memory_bytes,
        host_bytes=instance.host_bytes,
        shared_memory=False,
        peak={dtype: tflops * 1e12 for dtype, tflops in chip.peak_tflops.items()},
        memory_bandwidth=chip.memory_gbs * 1e9,
        bus_bandwidth=chip.bus_gbs * 1e9,
        network_bandwidth=instance.network_gbps * 1e9 / 8,
        floor_s=chip.floor_us / 1e6,
        instance=instance,
    )


def here(processes: int, *, measure: bool = True) -> Machine:
    """Plan for this machine: processes share cores and memory; what products reach is measured, shortly."""
    total = psutil.virtual_memory().total
    peak = product_flops() / processes if measure else 0.0
    return Machine(
        name=LOCAL,
        nodes=1,
        devices=processes,
        device_bytes=total // processes,
        host_bytes=total,
        shared_memory=True,
        peak={"fp32": peak, "bf16": peak / 3},  # without instructions for it, as measured on AVX-512
        memory_bandwidth=10e9 / processes,
        bus_bandwidth=1e9,
        network_bandwidth=1e9,
        floor_s=2e-4,
    )


@cache
def product_flops(size: int = 384, tries: int = 20) -> float:
    """FLOP/s of fp32 matrix products on all cores: the best of some, in about 0.05 s."""
    left = np.ones((size, size), np.float32)
    best = 0.0
    for _ in range(tries):  # the first starts the threads
        start = time.perf_counter()
        left @ left
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best
