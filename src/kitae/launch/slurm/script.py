"""The script of a job: a few lines that a person can read, with absolute paths, safe for blanks in them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kitae.recipe.target import TargetConfig

_KEPT = ("PYTHONPATH",)
"""Variables that a job gets as they are here, where they are set."""


@dataclass(frozen=True)
class Task:
    """What a job is to do."""

    stage: str
    """What the chain calls it."""
    module: str
    """Module that its first node runs."""
    words: tuple[str, ...] = ()
    """Behind the run's folder."""
    trains: bool = False
    """Whether it takes all nodes, saves before the time limit and is queued again."""
    all_nodes: bool = False
    """Whether it takes as many nodes as the training."""


def script_of(task: Task, run: Path, target: TargetConfig, cache: Path) -> str:
    """The text of a job's script."""
    directives = [f"#SBATCH --{_directive(*one)}" for one in _directives(task, run, target)]
    further = [f"#SBATCH {option}" for option in target.extra]
    exports = [f"export {name}={shlex.quote(value)}" for name, value in _variables(cache).items()]
    command = [sys.executable, "-m", task.module, str(run), *task.words]
    return "\n".join(
        [
            "#!/bin/bash",
            f"# {task.stage} of {run}, written by kitae",
            *directives,
            *further,
            *target.setup,
            *exports,
            # The shell becomes kitae, which then gets the signals that are meant for the job.
            f"exec {shlex.join(command)}",
            "",
        ]
    )


def _directives(task: Task, run: Path, target: TargetConfig) -> Iterator[tuple[str, str | None]]:
    yield "job-name", f"{run.name}.{task.stage}"
    # Without tasks: with some for each node, Slurm takes the fewest nodes of a range.
    yield "nodes", nodes_of(target) if task.trains or task.all_nodes else "1"
    for option, value in (
        ("partition", target.partition),
        ("account", target.account),
        ("qos", target.qos),
        ("reservation", target.reservation),
        ("constraint", target.constraint),
        ("gres", target.gres),
        ("time", target.time_limit),
    ):
        if value is not None:
            yield option, value
    if target.exclusive:
        yield "exclusive", None
    yield "chdir", str(run)
    # In this path Slurm writes the job's number for %j.
    yield "output", f"{str(log_of(run, task.stage)).replace('%', '%%')}"
    yield "open-mode", "append"
    if task.trains:
        yield "requeue", None
        yield "signal", f"B:USR1@{target.signal_before_s}"
    else:
        yield "no-requeue", None


def nodes_of(target: TargetConfig) -> str:
    """Nodes as sbatch takes them."""
    return f"{target.least}" if target.least == target.most else f"{target.least}-{target.most}"


def log_of(run: Path, stage: str) -> Path:
    """Where a job's own output goes."""
    return run / "logs" / f"slurm-{stage}.log"


def _directive(name: str, value: str | None) -> str:
    if value is None:
        return name
    plain = all(one.isalnum() or one in "-_./:@,=+%&|[]*" for one in value)
    # sbatch splits its comments as a shell does, but for `$`.
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f"{name}={value}" if plain else f'{name}="{escaped}"'


def _variables(cache: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    kept = {name: environment[name] for name in _KEPT if environment.get(name)}
    absolute = {
        name: os.pathsep.join(str(Path(place).absolute()) for place in value.split(os.pathsep) if place)
        for name, value in kept.items()
    }
    return {"KITAE_CACHE": str(cache), **absolute}
