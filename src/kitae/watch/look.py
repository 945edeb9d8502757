"""Looks at runs: their folders here, and the scheduler where there is one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kitae.errors import ClusterError
from kitae.launch.slurm.commands import Slurm
from kitae.watch.facts import RunFacts, life_of
from kitae.watch.remote import is_remote, seen_there
from kitae.watch.state import ACTIVE, Jobs
from kitae.watch.status import Status, status_of

Seen = dict[str, Any]
"""What `Status.as_json` tells."""
RECENT_S = 86_400.0
_READERS = 8


def look_at(
    paths: Sequence[Path],
    slurm: Slurm | None = None,
    tell: Callable[[str], None] = lambda line: None,
    now: Callable[[], float] = time.time,
) -> list[Status]:
    """How these runs are now; `tell` gets what could not be found out."""
    with ThreadPoolExecutor(_READERS) as pool:  # a shared file system answers slowly, but many at once
        found = list(pool.map(RunFacts.read, paths))
    jobs = _jobs([job.number for facts in found for job in facts.jobs], slurm, tell)
    at = now()
    return [status_of(facts, jobs, life_of, at) for facts in found]


def seen_in(paths: Sequence[Path], tell: Callable[[str], None]) -> list[Seen]:
    """What there is to say of runs, also of those on head nodes; those at work first, then the newest."""
    here = [path for path in paths if not is_remote(path)]
    found = [status.as_json() for status in look_at(here, tell=tell)]
    found += seen_there([path for path in paths if is_remote(path)], tell)
    return sorted(found, key=lambda one: (one["state"] not in ACTIVE, one["last_sign_s"] or 0.0))


def is_recent(seen: Seen) -> bool:
    """Whether a run is at work, or ended not long ago."""
    return seen["state"] in ACTIVE or (seen["last_sign_s"] or 0.0) < RECENT_S


def look(path: Path, slurm: Slurm | None = None) -> Status:
    """How a run is now."""
    return look_at([path], slurm)[0]


def _jobs(numbers: Sequence[int], slurm: Slurm | None, tell: Callable[[str], None]) -> Jobs | None:
    """What Slurm says of jobs; None where it cannot be asked."""
    if not numbers:
        return {}
    if slurm is None and shutil.which("squeue") is None:
        tell("there is no squeue here: what is said of jobs is what the runs' folders say")
        return None
    try:
        return (slurm or Slurm()).jobs(numbers)
    except ClusterError as error:
        tell(f"{error}; what is said of jobs is what the runs' folders say")
        return None
