"""The same training on the CPU and on torch-xla's CPU, and what is compared of the two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kitae.backend.table import select
from kitae.backend.xla import XlaBackend
from kitae.precompile.ledger import Ledger
from kitae.train.job import TrainJob
from kitae.train.loop import train
from kitae.train.metrics import read_records


@dataclass(frozen=True)
class Trained:
    """A training that is done."""

    folder: Path
    records: list[dict[str, Any]]
    ledger: Ledger
    compiled: int
    """Programs that were compiled for it."""
    new_keys: int
    """Graphs in its ledger that no training of this process had before."""
    model: torch.nn.Module

    def losses(self) -> list[float]:
        """Of updates and evaluations, in the order in which they happened."""
        return [one["loss"] for one in self.records if "loss" in one]

    def norms(self) -> list[float]:
        """Of the gradients of each update."""
        return [one["grad_norm"] for one in self.records if one["kind"] == "train"]


def on_xla(job: TrainJob) -> TrainJob:
    """The job on torch-xla."""
    backend = select("xla")
    return replace(job, backend=backend, model=job.model.to(backend.device))


def run(job: TrainJob) -> Trained:
    """Train; where the job is one of torch-xla, with execution forbidden but at boundaries."""
    before = _compiled(job)
    with forbidden(job.backend):
        train(job)
    assert isinstance(job.backend.observer, Ledger)
    records = list(read_records(job.folder / "metrics.jsonl"))
    ledger = job.backend.observer
    new = set(ledger.keys) - _KNOWN
    _KNOWN.update(new)
    return Trained(job.folder, records, ledger, _compiled(job) - before, len(new), job.model)


_KNOWN: set[str] = set()


def both(folder: Path, make: Callable[[Path], TrainJob]) -> tuple[Trained, Trained]:
    """Train what `make` gives for a folder on the CPU, and on torch-xla."""
    return run(make(folder / "cpu")), run(on_xla(make(folder / "xla")))


def largest_difference(one: list[float], other: list[float]) -> float:
    """Between numbers that belong together."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


@contextmanager
def forbidden(backend: Any) -> Iterator[None]:
    """Let torch-xla raise whatever runs a graph elsewhere than at a boundary."""
    if not isinstance(backend, XlaBackend):
        yield
        return
    import torch_xla

    core = torch_xla._XLAC
    usual = backend.boundary

    def boundary(*arguments: Any, **options: Any) -> None:
        core._set_allow_execution(True)
        try:
            usual(*arguments, **options)
        finally:
            core._set_allow_execution(False)

    backend.boundary = boundary  # type: ignore[method-assign]
    core._set_allow_execution(False)
    try:
        yield
    finally:
        core._set_allow_execution(True)
        backend.boundary = usual  # type: ignore[method-assign]


def _compiled(job: TrainJob) -> int:
    return job.backend.compiled() if isinstance(job.backend, XlaBackend) else 0
