"""How many graphs are compiled at a time: as many as the host's memory and processors bear.

jobs = min(graphs, processors // 2, (available memory - 4 GiB) // 8 GiB), at least 1

8 GiB for one compiler is an assumption: it goes with what is known of trn1.2xlarge (32 GiB and 8 processors,
where the tool's own eight at a time ran out of memory: 3 of them here), and large graphs need far more. A
compiler uses more than one thread, hence half of the processors.
"""

from __future__ import annotations

import os
from pathlib import Path

import psutil

RESERVE_BYTES = 4 << 30
JOB_BYTES = 8 << 30
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def jobs_for(available_bytes: int, processors: int, graphs: int | None = None) -> int:
    """Graphs to compile at a time; `graphs` is how many there are, where that is known."""
    by_memory = (available_bytes - RESERVE_BYTES) // JOB_BYTES
    most = min(by_memory, processors // 2)
    return max(1, most if graphs is None else min(most, graphs))


def available_bytes() -> int:
    """Memory that is free on this host, or in this job's share of it."""
    limits = [limit for path in _LIMITS if (limit := _limit(path)) is not None]
    return min([int(psutil.virtual_memory().available), *limits])


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _limit(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such group, or `max`
        return None
