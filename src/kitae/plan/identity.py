"""Which machine this is, as far as its speed goes."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

_CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Identity:
    """What numbers that were measured on a machine depend on."""

    processor: str
    cores: int
    """That a process may use."""
    threads: int
    """Of the processor, hyper-threads counted, that a process may use."""
    memory_gib: int
    torch: str

    @property
    def key(self) -> str:
        """The same for machines that are alike."""
        return hashlib.sha256(repr(sorted(asdict(self).items())).encode()).hexdigest()[:12]


@cache
def identity() -> Identity:
    """Of this machine, as this process may use it."""
    try:
        torch = version("torch").partition("+")[0]
    except PackageNotFoundError:
        torch = "none"
    return Identity(
        processor=_processor(),
        cores=usable_cores(),
        threads=_usable_threads(),
        memory_gib=round(psutil.virtual_memory().total / 2**30),
        torch=torch,
    )


def usable_cores() -> int:
    """Cores that this process may use, hyper-threads not counted."""
    return min(_usable_threads(), psutil.cpu_count(logical=False) or _usable_threads())


def _usable_threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_alone() -> int:
    """Threads that a training in this process has: `$OMP_NUM_THREADS`, else one a core."""
    return _given_threads() or usable_cores()


def threads_of(processes: int) -> int:
    """Threads of each of several processes that share this machine: as for one, else a share of the cores."""
    return _given_threads() or max(1, usable_cores() // processes)


def _given_threads() -> int:
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() else 0


def _processor() -> str:
    found = re.search(r"model name\s*:\s*(.+)", _CPU_INFO.read_text()) if _CPU_INFO.exists() else None
    return found[1].strip() if found else platform.processor() or platform.machine()
