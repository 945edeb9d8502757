"""What ranks do in the tests of the launch: functions that get the mesh, as the training does."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from kitae.errors import DataError, StoppedError
from kitae.parallel.mesh import Mesh
from kitae.train.signals import StopRequested, StopSignals


def note(folder: str, mesh: Mesh, text: str = "") -> None:
    """Leave a file that says that this rank was here: its process, or some text."""
    (Path(folder) / f"here-{mesh.rank}").write_text(text or str(os.getpid()))


def add(mesh: Mesh, folder: str) -> None:
    """Sum the ranks' numbers; what a rank knows about itself goes into a file."""
    total = mesh.world.all_reduce(torch.tensor([float(mesh.rank + 1)]))
    print(f"rank {mesh.rank} prints")
    print(f"rank {mesh.rank} warns", file=sys.stderr)
    facts = (total.item(), mesh.data.ranks, mesh.tensor.ranks, os.environ["MASTER_PORT"])
    note(folder, mesh, repr(facts))


def environment(mesh: Mesh, folder: str) -> None:
    """Write the variables of this rank down."""
    (Path(folder) / f"environment-{mesh.rank}.json").write_text(json.dumps(dict(os.environ)))


def neuron_calls(mesh: Mesh, folder: str) -> None:
    """Write down what the stand-in of TorchNeuron was asked for, once all ranks are here."""
    assert mesh.control.exchange(mesh.rank) == list(range(mesh.control.size))
    (Path(folder) / f"calls-{mesh.rank}.json").write_text(json.dumps(torch.neuron.calls))  # type: ignore[attr-defined]


def fail(mesh: Mesh, folder: str, rank: int, how: str) -> None:
    """One rank fails while the others wait for it."""
    note(folder, mesh)
    mesh.control.barrier()
    mesh.meter.observer.touch("step 7")
    if mesh.rank == rank:
        print("the last words")
        _FAILURES[how]()
    mesh.control.barrier()


def _raise() -> None:
    raise DataError("row 7 is broken")


def _signal(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


_FAILURES: dict[str, Callable[[], None]] = {
    "error": _raise,
    "kill": _signal(signal.SIGKILL),
    "freeze": _signal(signal.SIGSTOP),
}


def train(mesh: Mesh, folder: str, deaf: bool = False) -> None:
    """Go on until a signal, save together, and say so; with `deaf`, go on for ever."""
    note(folder, mesh)
    with StopSignals(mesh.control) as stop:
        step = 0
        try:
            while True:
                mesh.world.all_reduce(torch.ones(4))
                step += 1
                if step == 3:
                    (Path(folder) / f"trains-{mesh.rank}").touch()
                if not deaf:
                    stop.check()
        except StopRequested as request:
            mesh.control.barrier()
            (Path(folder) / f"saved-{mesh.rank}").write_text(str(step))
            raise StoppedError(f"stopped by {request} after step {step}") from None
