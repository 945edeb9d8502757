"""What `kitae calibrate` has measured of this machine, kept in the state folder as one JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import log
from pathlib import Path
from typing import Any

from kitae.plan.identity import Identity, identity
from kitae.storage.files import replace_file
from kitae.storage.state import state_folder

FORMAT = 1
"""Raised when constants of the same name come to mean something else."""
PRECISIONS = 3
"""That are measured in one process: fp32, bf16, autocast."""
PER_NUMBER = ("flop", "weight", "state", "inner", "head", "score", "logit", "number", "query")
"""Endings of constants that more threads share; others are the price of a call."""


@dataclass(frozen=True)
class Speeds:
    """Constants of an update (`plan.parts`) in one precision, with so many threads a process."""

    precision: str
    threads: int
    processes: int
    """That computed at the same time."""
    constants: Mapping[str, float]
    """Seconds each, by name."""
    misfit: float
    """Mean relative error over the pieces that the constants were fitted to."""
    spread: float
    """How much longer than at its best a piece usually took, as a share: the others on this machine."""


@dataclass(frozen=True)
class ProductSpeed:
    """How fast a linear layer and its gradients are."""

    precision: str
    threads: int
    tokens: int
    inputs: int
    outputs: int
    flops: float
    """A second, at its best."""
    spread: float


@dataclass(frozen=True)
class Calibration:
    """All of it."""

    machine: Identity
    made: str
    """Time, ISO 8601."""
    took_s: float
    speeds: tuple[Speeds, ...]
    products: tuple[ProductSpeed, ...]
    memory_bytes_per_s: float
    """Of a copy too large for caches, read and written."""
    pass_bytes_per_s: float
    """Of a pass over numbers that caches hold."""
    collective_floor_s: float
    """Of an empty all-reduce of two processes."""
    collective_bytes_per_s: float
    disk_write_bytes_per_s: float
    """To the end of fsync."""
    disk_sync_s: float
    """Of a small file."""
    disk_read_bytes_per_s: float
    """Of a file just written, out of the page cache where there is room."""
    hash_bytes_per_s: float
    """SHA-256."""

    @property
    def is_whole(self) -> bool:
        """Whether all that was to be measured with all threads was."""
        return sum(one.processes == 1 for one in self.speeds) == PRECISIONS

    def constants(self, precision: str, threads: int, processes: int) -> Mapping[str, float]:
        """Of the nearest number of threads, and processes; what more threads share is scaled to it.

        Of bf16 where autocast was not measured in time, and of fp32 where bf16 was not.
        """
        kinds = {"fp32": ("fp32",), "autocast": ("autocast", "bf16", "fp32")}.get(precision, ("bf16", "fp32"))
        for kind in kinds:
            found = [one for one in self.speeds if one.precision == kind]
            if found:
                break
        nearest = min(
            found, key=lambda one: (abs(log(one.threads / threads)), abs(log(one.processes / processes)))
        )
        factor = nearest.threads / threads
        return {
            name: value * (factor if name.rpartition(".")[2] in PER_NUMBER else 1)
            for name, value in nearest.constants.items()
        }

    def peak(self, precision: str, threads: int) -> float:
        """FLOP/s of the fastest product."""
        kind = "fp32" if precision == "fp32" else "bf16"
        found = [one for one in self.products if one.precision == kind] or self.products
        return max(one.flops * threads / one.threads for one in found)


def path_of(machine: Identity) -> Path:
    """Where the numbers of a machine lie."""
    return state_folder() / "calibration" / f"{machine.key}.json"


def save(found: Calibration) -> Path:
    """Replace what is kept of the same machine. Raises `StorageError`."""
    path = path_of(found.machine)
    replace_file(path, (json.dumps({"format": FORMAT, **asdict(found)}, indent=1) + "\n").encode())
    return path


def load(machine: Identity | None = None) -> Calibration | None:
    """What is kept of a machine, this one by default; None where it is nothing that can be read."""
    path = path_of(machine or identity())
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return _parsed(values) if values.pop("format", None) == FORMAT else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _parsed(values: dict[str, Any]) -> Calibration:
    lists: dict[str, Any] = {
        "machine": Identity(**values.pop("machine")),
        "speeds": tuple(Speeds(**one) for one in values.pop("speeds")),
        "products": tuple(ProductSpeed(**one) for one in values.pop("products")),
    }
    return Calibration(**lists, **values)
