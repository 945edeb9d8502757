"""What two processes measure together: collectives, and pieces while both compute."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kitae.calibrate.sweep import sweeps
from kitae.plan.calibration import Speeds
from kitae.storage.files import replace_file

if TYPE_CHECKING:
    from kitae.parallel.mesh import Mesh

SIZES = (64, 64 << 10, 1 << 20, 8 << 20)
"""Bytes of what is summed."""
TRIES = 12


def measure_rank(result: str, mesh: Mesh) -> None:
    """Measure as one of the ranks; the first writes what it found into the file `result`."""
    floor, bandwidth = collective_speed(lambda size: _all_reduce_s(mesh, size))

    def say(what: str) -> None:
        mesh.meter.observer.touch(what)
        mesh.control.barrier()

    speeds, products = sweeps(mesh, say, ("fp32", "bf16"))
    if mesh.leads:
        found: dict[str, Any] = {
            "speeds": [asdict(_with_waits(one, floor)) for one in speeds],
            "products": [asdict(one) for one in products],
            "collective_floor_s": floor,
            "collective_bytes_per_s": bandwidth,
        }
        replace_file(Path(result), json.dumps(found).encode())


def _with_waits(speeds: Speeds, floor_s: float) -> Speeds:
    """Constants of collectives are in processor time; each call waits for the others as well."""
    waits = {name: speeds.constants.get(name, 0.0) + floor_s for name in ("copies.call", "tensor.call")}
    return replace(speeds, constants={**speeds.constants, **waits})


def collective_speed(seconds_of: Callable[[int], float]) -> tuple[float, float]:
    """Seconds of an empty all-reduce, and bytes a second that one process sends beyond that.

    An all-reduce of n processes sends 2 (n - 1) / n of its bytes from each: of two processes all of them.
    """
    times = {size: seconds_of(size) for size in SIZES}
    floor = times[SIZES[0]]
    rates = [size / max(times[size] - floor, 1e-9) for size in SIZES[1:]]
    return floor, sorted(rates)[len(rates) // 2]


def _all_reduce_s(mesh: Mesh, size: int) -> float:
    tensor = torch.ones(size // 4)
    seconds = []
    for _ in range(TRIES):
        mesh.control.barrier()
        begin = time.perf_counter()
        mesh.world.all_reduce(tensor.clone())
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:])
