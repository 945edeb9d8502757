"""What a run's folder tells, read cheaply: however long the run is, no more than the ends of its files."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import psutil

from kitae.errors import RecipeError
from kitae.launch.slurm.record import StageJob, read_jobs
from kitae.stages.files import read_json
from kitae.watch.tail import first_record, last_records

Attempt = Mapping[str, Any]
"""A record of `run.json`."""
Life = Literal["alive", "gone", "elsewhere"]

_SIGNS = ("run.json", "slurm.json", "metrics.jsonl", "results.json", "proof.json")
REMOTE = "remote.json"
"""Says where a run is that was submitted on a head node; see `launch.ssh.remote`."""
_PACE_STEPS = 100
_REUSED_S = 10.0
"""A process that began later than the attempt by more than this is another one of the same number."""


@dataclass(frozen=True)
class Progress:
    """How far a training is; None for what nothing tells."""

    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    tokens_per_s: float | None = None
    step_seconds: float | None = None
    """Mean of the last updates, without those that warm up."""

    @property
    def seconds_left(self) -> float | None:
        """Of the updates that are left, without evaluations and saves."""
        if self.step is None or self.steps is None or self.step_seconds is None:
            return None
        return max(0, self.steps - self.step) * self.step_seconds


def progress_of(path: Path) -> Progress:
    """What the metrics and the results of a run tell."""
    metrics = path / "metrics.jsonl"
    updates = last_records(metrics, "train", _PACE_STEPS)
    steps = read_json(path / "results.json").get("steps") or first_record(metrics).get("steps")
    if not updates:
        return Progress(steps=steps)
    steady = [one for one in updates if not one.get("first_step")] or updates
    seconds = sum(one["step_seconds"] for one in steady)
    return Progress(
        step=updates[-1]["step"],
        steps=steps,
        loss=updates[-1]["loss"],
        tokens_per_s=sum(one["padded_tokens"] for one in steady) / seconds if seconds else None,
        step_seconds=seconds / len(steady),
    )


@dataclass(frozen=True)
class RunFacts:
    """What the folder of a run tells."""

    path: Path
    attempts: tuple[Attempt, ...]
    jobs: tuple[StageJob, ...]
    """Of Slurm, in the order of the chain."""
    progress: Progress
    last_sign: float | None
    """When anything in it changed last, in seconds since 1970."""
    stages: tuple[str, ...] = ()
    """That are done."""
    damaged: bool = False
    """Whether `run.json` is there, and cannot be understood."""

    @classmethod
    def read(cls, path: Path) -> RunFacts:
        """Those of a folder."""
        state = read_json(path / "run.json")
        return cls(
            path=path,
            attempts=tuple(state.get("attempts", ())),
            jobs=tuple(read_jobs(path)),
            progress=progress_of(path),
            last_sign=last_sign(path),
            stages=tuple(state.get("stages", ())),
            damaged=not state and (path / "run.json").is_file(),
        )

    @property
    def newest(self) -> Attempt | None:
        """The newest attempt."""
        return self.attempts[-1] if self.attempts else None

    @cached_property
    def price_per_node_hour(self) -> float | None:
        """US dollars, where the recipe says so."""
        return price_of(self.path)


def price_of(run: Path) -> float | None:
    """`target.price_per_node_hour` of a run's recipe; None where it has none or cannot be read."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for name in ("recipe.yaml", "submitted.yaml"):
        with suppress(OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
            values = yaml.load((run / name).read_text(encoding="utf-8"), loader)
            return float(values["target"]["price_per_node_hour"])
    return None


def last_sign(run: Path) -> float | None:
    """When a file that the run's processes write to changed last."""
    times = []
    for path in _written(run):
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times, default=None)


def _written(run: Path) -> Iterator[Path]:
    yield from (run / name for name in _SIGNS)
    yield run / "checkpoints"
    for pattern in ("rank-*.log", "slurm-*.log"):
        yield from (run / "logs").glob(pattern)


def life_of(attempt: Attempt, here: str | None = None) -> Life:
    """Whether the process of an attempt is there, as far as this machine can tell."""
    pid, host = attempt.get("pid"), attempt.get("host")
    own = here or socket.gethostname()
    if host not in (None, own):
        return "elsewhere"
    try:
        process = psutil.Process(int(pid or -1))
        begun = process.create_time()
    except (psutil.Error, ValueError):
        return "gone"
    if process.status() == psutil.STATUS_ZOMBIE:
        return "gone"
    return "alive" if begun <= seconds_since_1970(attempt["started"]) + _REUSED_S else "gone"


def seconds_since_1970(text: str) -> float:
    """Of a time in `run.json`; now, where it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return datetime.now(timezone.utc).timestamp()


def is_run(path: Path) -> bool:
    """Whether a folder is that of a run, perhaps of one that has only been submitted."""
    return any((path / name).is_file() for name in ("run.json", "slurm.json", "submitted.yaml", REMOTE))


def find_run(given: Path) -> Path:
    """The folder of a run that a person named: by its path, or by its name in `runs/`.

    Raises `RecipeError`.
    """
    for path in (given, Path("runs") / given):
        if is_run(path):
            return path.absolute()
    if not given.exists():
        raise RecipeError(f"{given}: there is no such run; kitae ps lists those in runs/ (--runs: elsewhere)")
    raise RecipeError(f"{given} is no run of kitae: there is no run.json in it; kitae ps lists runs")


def runs_in(folder: Path) -> list[Path]:
    """The folders of runs in a folder, by name. Raises `RecipeError` where there is no such folder."""
    try:
        names = sorted(one.name for one in os.scandir(folder) if one.is_dir())
    except OSError as error:
        raise RecipeError(
            f"--runs: {folder} cannot be read ({error.strerror}); name the folder that holds the runs"
        ) from error
    return [folder.absolute() / name for name in names if is_run(folder / name)]
