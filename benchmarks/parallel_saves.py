"""One rank of `parallel.py saves`: how long saves hold the training up, and what they cost it meanwhile.

A round saves at once, saves beside nothing, and copies the state, in an order that changes; then it makes
updates alone, and as many beside a save until that is published.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from statistics import mean
from typing import Any

import torch
from parallel_sides import CUTS, mesh_of, world
from sides import say
from train_sides import Work, kitae_job, peak_bytes

from kitae.data.examples import Sample
from kitae.train.batch import GlobalBatch, global_batch
from kitae.train.build import build_stepper
from kitae.train.job import TrainJob
from kitae.train.optimizer import MOMENTS
from kitae.train.state import Saver, TrainState

LEARNING_RATE = 1e-5


class Saves:
    """The contenders. All ranks begin each together."""

    def __init__(self, job: TrainJob) -> None:
        self._job = job
        self._stepper = build_stepper(job, job.phases[0])
        self._saver = Saver(job, self._stepper)
        self._batch = self._rows()
        self._steps: Iterator[int] = count(1)
        kinds = [self._stepper.weights.masters, *map(self._stepper.optimizer.moments, MOMENTS)]
        self._state = [tensor.detach() for tensors in kinds for tensor in tensors.values()]
        self._copies = [torch.empty_like(tensor) for tensor in self._state]
        self.state_bytes = sum(tensor.nbytes for tensor in self._state)

    def copy(self) -> dict[str, float]:
        """One pass over memory that is there already, as asynchronous saves do it."""
        with torch.no_grad():
            return {"copy": self._seconds(lambda: torch._foreach_copy_(self._copies, self._state))}

    def at_once(self) -> dict[str, float]:
        """A save that the training waits for."""
        return {"sync": self._seconds(lambda: self._saver.save(self._counters(), None))}

    def beside(self) -> dict[str, float]:
        """A save in a thread, and how long until it is published when nothing else goes on."""
        begin = self._seconds(lambda: self._saver.begin(self._counters(), None))
        start = time.perf_counter()
        self._job.store.wait()
        return {"begin": begin, "written": begin + time.perf_counter() - start}

    def training(self) -> dict[str, float]:
        """Updates beside a save, and as many alone: seconds an update, and what the save has added in all."""
        start = time.perf_counter()
        begin = self._seconds(lambda: self._saver.begin(self._counters(), None))
        beside = [self._update()]
        while self._job.store.check() is None:
            beside.append(self._update())
        total = time.perf_counter() - start
        alone = [self._update() for _ in beside]
        # The save ends within the last one.
        within = beside[:-1] or beside
        return {
            "slower": mean(within) / mean(alone),
            "updates": float(len(beside)),
            "begin_beside": begin,
            "added": total - sum(alone),
        }

    def _update(self) -> float:
        step = next(self._steps)
        return self._seconds(lambda: self._stepper.update(self._batch, LEARNING_RATE, step=step))

    def _counters(self) -> TrainState:
        return TrainState(step=next(self._steps))

    def _rows(self) -> GlobalBatch[Any]:
        """One row a copy of the model: short updates, so that several end beside one save."""
        job = self._job
        samples = [Sample(row) for row in range(job.mesh.data.size)]
        return global_batch(job.phases[0].train, samples, 1, job.backend.device, job.mesh)

    def _seconds(self, work: Callable[[], Any]) -> float:
        self._job.mesh.control.barrier()
        start = time.perf_counter()
        work()
        return time.perf_counter() - start


def main() -> None:
    cut, work = CUTS[sys.argv[1]], Work(**json.loads(sys.argv[2]))
    job = kitae_job(work, lambda: None, mesh_of(cut), **cut.settings(world()[0]))
    contenders = Saves(job)
    turns = [contenders.copy, contenders.at_once, contenders.beside]
    say({"ready": True})
    while sys.stdin.readline():
        found = [turn() for turn in turns]
        turns.append(turns.pop(0))
        times = {name: value for one in (*found, contenders.training()) for name, value in one.items()}
        say({"state_bytes": contenders.state_bytes, "peak_bytes": peak_bytes(), **times})


if __name__ == "__main__":
    main()
