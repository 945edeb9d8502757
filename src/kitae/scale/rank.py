"""What each process of a measurement does: the recipe's own training, of few updates, and the time it took.

Nothing is evaluated, saved or exported, and no checkpoint is looked for. The learning rate goes as in the
whole training, but for its decay, which has not begun in so few updates.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from kitae.backend.base import Backend
from kitae.backend.group import Meter, Observer
from kitae.backend.stack import instance_type
from kitae.checkpoint.store import CheckpointStore
from kitae.parallel.mesh import Mesh
from kitae.plan.identity import usable_cores
from kitae.recipe.base import Duration
from kitae.scale.setup import MEASURED, Order
from kitae.stages.files import write_json
from kitae.stages.job import open_job
from kitae.train.course import course_of
from kitae.train.job import Phase, TrainJob
from kitae.train.metrics import read_records
from kitae.train.pace import node_name

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_UPDATE = "an update"
"""What the loop says when it begins one (`train/loop.py`)."""


def measure_rank(folder: str, mesh: Mesh) -> None:
    """Train in the folder of a measurement; the process that leads leaves what was measured there."""
    from kitae.stages.training import train_job
    from kitae.train.loop import train

    order = Order.read(Path(folder))
    job = open_job(Path(folder), report=lambda line: None)
    if mesh.leads:
        _print_to(job.run.log)
        job.run.metrics.unlink(missing_ok=True)
    mesh.meter.observer.touch("loading weights and data")
    whole = train_job(job, order.key, mesh, lambda line: print(line, flush=True))
    short = shortened(whole, order.updates)
    clock = Clock(mesh.meter)
    mesh.meter.observer = clock
    train(short)
    own = {"rank": mesh.rank, **about_here(), **clock.updates(order.updates)}
    everyone = mesh.control.exchange(own)
    if mesh.leads:
        found = {**order.as_json(), **facts(short, job.backend), "ranks": everyone}
        write_json(Path(folder) / MEASURED, {**found, "steps": steps_of(job.run.metrics)})


def _print_to(log: Path) -> None:
    """Let what this process prints go to its log, as that of the others does."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)


def shortened(job: TrainJob, updates: int) -> TrainJob:
    """The same training, ended after so many updates, with nothing but updates in it."""
    (stretch,) = course_of(job).stretches
    phase = stretch.phase
    warmup = Duration(stretch.lengths.warmup_steps, "steps")
    changes = {
        "training": phase.recipe.training.model_copy(update={"duration": Duration(updates, "steps")}),
        "schedule": phase.recipe.schedule.model_copy(update={"kind": "constant", "warmup": warmup}),
    }
    short = Phase(phase.recipe.model_copy(update=changes), phase.train, None, phase.data_key, phase.name)
    return replace(job, phases=(short,), store=KeepsNothing(job.store.folder, keep=1))


class KeepsNothing(CheckpointStore):
    """Where there is nothing to go on from, and nothing is saved."""

    def latest(self, *, verify: bool = True) -> None:
        """Nothing."""
        return

    def save(self, step: int, *given: Any, **about: Any) -> Path:
        """Nothing is written."""
        return self.folder

    def begin_save(self, step: int, *given: Any, **about: Any) -> None:
        """Nothing is written."""


class Clock:
    """Notes when each update begins, and how long collectives were waited for by then."""

    def __init__(self, meter: Meter) -> None:
        self._meter, self._inner = meter, meter.observer
        self._begins: list[tuple[float, float]] = []
        self._end: tuple[float, float] | None = None

    def enter(self) -> None:
        """See `Observer`."""
        self._inner.enter()

    def leave(self) -> None:
        """See `Observer`."""
        self._inner.leave()

    def touch(self, where: str) -> None:
        """See `Observer`: an update begins, or what comes after the last one."""
        self._inner.touch(where)
        now = time.perf_counter(), self._meter.waited_s
        if where.startswith(_UPDATE):
            self._begins.append(now)
        elif self._begins and self._end is None:
            self._end = now

    def updates(self, count: int) -> dict[str, list[float]]:
        """Seconds of each update, and how many of them collectives were waited for."""
        assert self._end is not None, "the loop tells when it has left its last update"
        assert len(self._begins) == count, "the loop tells of every update"
        pairs = list(pairwise([*self._begins, self._end]))
        return {
            "seconds": [end[0] - begin[0] for begin, end in pairs],
            "waited_s": [end[1] - begin[1] for begin, end in pairs],
        }


_: type[Observer] = Clock


def about_here() -> dict[str, Any]:
    """Where this process runs: which node and host, and how many cores and threads it has there."""
    return {
        "node": node_name(),
        "host": _BOOT.read_text().strip() if _BOOT.is_file() else node_name(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
    }


def facts(job: TrainJob, backend: str) -> dict[str, Any]:
    """What was trained, and how."""
    lengths = course_of(job).stretches[0].lengths
    return {
        "processes": job.mesh.control.size,
        "copies": job.mesh.data.size,
        "global_batch_size": lengths.global_batch_size,
        "micro_batch_size": lengths.micro_batch_size,
        "accumulation_steps": lengths.accumulation_steps,
        "backend": backend,
        "precision": job.recipe.training.precision,
        "instance": instance_type() or None,
        "waits_are_seen": waits_are_seen(job.backend),
    }


def waits_are_seen(backend: Backend) -> bool:
    """Whether the host itself waits for collectives: elsewhere they are part of what the device is given."""
    return backend.device.type == "cpu" and not backend.lazy


def steps_of(metrics: Path) -> list[Mapping[str, Any]]:
    """The updates, as the training recorded them."""
    names = {"step": "step", "loss": "loss", "seconds": "step_seconds"}
    names |= {name: name for name in ("grad_norm", "padded_tokens", "real_tokens")}
    return [
        {name: record[key] for name, key in names.items()}
        for record in read_records(metrics)
        if record["kind"] == "train"
    ]
