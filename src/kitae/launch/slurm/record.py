"""What a run keeps of its jobs: which were submitted for which stage, in `slurm.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kitae.storage.files import replace_file

SUBMITTED = "submitted.yaml"
"""The recipe as submitted: with its flags and absolute paths, but nothing that depends on a machine."""
_FILE, _WITHOUT = "slurm.json", "slurm-without.json"


@dataclass(frozen=True)
class StageJob:
    """A stage that was submitted."""

    stage: str
    number: int
    """Of the job; it stays the same when the job is queued again."""


def write_jobs(run: Path, jobs: Sequence[StageJob]) -> None:
    """Keep them."""
    replace_file(run / _FILE, (json.dumps({"jobs": [asdict(job) for job in jobs]}, indent=2) + "\n").encode())


def read_jobs(run: Path) -> list[StageJob]:
    """Those of a run, in order; empty where none were submitted."""
    try:
        values = json.loads((run / _FILE).read_text(encoding="utf-8"))
        return [StageJob(**one) for one in values["jobs"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def write_without(run: Path, nodes: Mapping[str, str]) -> None:
    """Keep which nodes the run is to leave out, with the reason for each."""
    replace_file(run / _WITHOUT, (json.dumps(dict(nodes), indent=2) + "\n").encode())


def read_without(run: Path) -> dict[str, str]:
    """Nodes to leave out -> why."""
    try:
        values: dict[str, str] = json.loads((run / _WITHOUT).read_text(encoding="utf-8"))
        return values
    except (OSError, ValueError):
        return {}
