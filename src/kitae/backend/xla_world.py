"""Whether the processes of a launch are one world for torch-xla, too.

It learns of the others from its runtime, not from the launcher. A runtime that was not told of them, or
cannot work with them, gives each process a world of its own, and every collective then returns what it was
given, without an error: replicas drift apart, and sums are those of one rank. A CPU does so always.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kitae.errors import TrainingError


@dataclass(frozen=True)
class Sight:
    """What one process sees."""

    devices: int
    """Of the whole world."""
    ordinal: int
    """Number of this process's device among them, which replica groups are made of."""
    here: int
    """Devices that this process itself has."""


def look() -> Sight:
    """Have this process's device take part in the world that torch-xla knows of, and say which that is."""
    xm: Any = import_module("torch_xla.core.xla_model")
    runtime: Any = import_module("torch_xla.runtime")
    devices = xm.get_xla_supported_devices()
    xm.set_replication(devices[0], devices)
    return Sight(runtime.global_device_count(), runtime.global_ordinal(), runtime.addressable_device_count())


def check_one_world(sights: Sequence[Sight]) -> None:
    """Raise `TrainingError` unless rank r is device r of one world; `sights` are those of all ranks."""
    reason = _split(sights)
    if reason is not None:
        raise TrainingError(
            f"the processes of this training are no single world for torch-xla: {reason}. Nothing was "
            f"trained. {_WAY_OUT.get(os.environ.get('PJRT_DEVICE', ''), _RUNTIME)}"
        )


def _split(sights: Sequence[Sight]) -> str | None:
    """Why these are not one world."""
    sizes = sorted({one.devices for one in sights})
    if sizes != [len(sights)]:
        seen = " or ".join(map(str, sizes))
        return f"{len(sights)} were started, and each sees a world of {seen}, so that sums would be wrong"
    ordinals = [one.ordinal for one in sights]
    if ordinals != [*range(len(sights))]:
        return (
            f"the ranks 0 to {len(sights) - 1} take themselves for devices {', '.join(map(str, ordinals))}, "
            "so that collectives would meet the wrong ones, or wait for ever"
        )
    here = next((one.here for one in sights if one.here != 1), 1)
    return None if here == 1 else f"a process has {here} devices, where each rank has one"


_RUNTIME = (
    "Neuron's runtime learns the world from WORLD_SIZE, RANK and LOCAL_RANK, which kitae's launcher sets: "
    "take NEURON_PJRT_WORLD_SIZE, NEURON_PJRT_PROCESS_INDEX, NEURON_PJRT_PROCESSES_NUM_DEVICES and "
    "NEURON_RT_VISIBLE_CORES out of the environment"
)
_WAY_OUT = {
    "CPU": (
        "torch-xla cannot do this on a CPU: train in several processes with target.backend: cpu, and look at "
        "the programs of all ranks with `kitae precompile RECIPE --trace-only`"
    )
}
"""By PJRT_DEVICE."""
