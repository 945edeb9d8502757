"""Plans for this machine, where it was calibrated: counts of an update times measured constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from kitae.plan import history
from kitae.plan.calibration import Calibration, load
from kitae.plan.fitting import seconds_of
from kitae.plan.history import Entry, Key
from kitae.plan.identity import identity, threads_of, usable_cores
from kitae.plan.learning import Learned, learn
from kitae.plan.machine import Machine, here
from kitae.plan.parts import Counts, update_counts
from kitae.plan.step_time import StepTime, collectives
from kitae.plan.work import Work

ENOUGH_STEPS = 3
"""Updates that a training has to have made after its first, to be learned from."""
OVERLOADED = 2.0
"""Nothing is learned where so many processes for each core wanted to run: others were in the way."""
PLACES = {
    "product": "matrices",
    "causal": "attention",
    "long": "attention",
    "whole": "attention",
    "dropped": "attention",
    "vocabulary": "head",
    "decoder": "layers",
    "encoder": "layers",
    "micro": "layers",
    "gradient": "weights",
    "accumulate": "weights",
    "embedding": "weights",
    "dropout": "dropout",
    "adamw": "optimizer",
    "lamb": "optimizer",
    "rounding": "optimizer",
    "update": "optimizer",
    "tensor": "tensor_parallel",
    "copies": "copies",
}
"""Where the seconds of a constant are shown, by the beginning of its name."""
PRODUCTS = ("matrices", "attention", "head", "layers")


@dataclass(frozen=True)
class Local:
    """What is known of trainings here."""

    calibration: Calibration
    entries: Sequence[Entry]

    def step_time(self, work: Work, machine: Machine) -> StepTime:
        """Of an update, with what earlier trainings of its family have shown."""
        learned = self.learned(key_of(work, self.calibration.machine.key))
        threads = threads_of(work.world)
        constants = self._constants(work.precision, threads, work.world)
        places = dict.fromkeys(PLACES.values(), 0.0)
        for name, count in counts_of(work, machine).items():
            places[PLACES[name.partition(".")[0]]] += learned.factor * count * constants.get(name, 0.0)
        return StepTime(
            products={name: places[name] for name in PRODUCTS},
            weights=places["weights"],
            dropout=places["dropout"],
            tensor_parallel=places["tensor_parallel"],
            copies=places["copies"],
            optimizer=places["optimizer"],
            idle=0.0,
            host=0.0,
            spread=learned.spread,
        )

    def assumptions(self, work: Work) -> Iterator[str]:
        """What the step time rests on."""
        key = key_of(work, self.calibration.machine.key)
        learned = self.learned(key)
        yield (
            f"an update is pieces that kitae calibrate measured on {self.calibration.made[:10]}; the "
            f"interval is a factor of {1 + learned.spread:.3g} either way"
        )
        where = f"{key.family}, {key.precision}, {key.ranks} process{'es' * (key.ranks > 1)}"
        where += f", a copy cut over {key.cut}" if key.cut > 1 else ""
        if learned.runs:
            yield f"times {learned.factor:.3g}, learned from {learned.runs} trainings here ({where})"
        else:
            yield f"nothing was learned from trainings yet ({where})"

    def learned(self, key: Key) -> Learned:
        """From the trainings of a family whose time is known."""
        return learn([self.ratio(one) for one in self._usable if one.key == key])

    def ratio(self, entry: Entry) -> float:
        """The actual step time by what the constants of today make of its counts."""
        constants = self._constants(entry.precision, entry.threads, entry.ranks)
        return (entry.actual["step_s"] or 0) / seconds_of(entry.counts, constants)

    @cached_property
    def _usable(self) -> list[Entry]:
        return [
            one
            for one in self.entries
            if one.machine == self.calibration.machine.key
            and one.steps >= ENOUGH_STEPS
            and one.actual.get("step_s")
            and one.counts
            and (one.load or 0) <= OVERLOADED * usable_cores()
        ]

    def _constants(self, precision: str, threads: int, ranks: int) -> Mapping[str, float]:
        """With those of collectives, as they are elsewhere; more threads than cores wait for each other."""
        found = self.calibration.constants(precision, threads, ranks)
        crowd = max(1.0, ranks * threads / usable_cores())
        link = {
            f"{kind}.{what}": value
            for kind in ("tensor", "copies")
            for what, value in (
                ("call", self.calibration.collective_floor_s),
                ("byte", 1 / self.calibration.collective_bytes_per_s),
            )
        }
        return {name: crowd * value for name, value in {**link, **found}.items()}


def key_of(work: Work, machine: str) -> Key:
    """Whose experience counts for a work on a machine, which is named by its `Identity.key`."""
    return Key(machine, family_of(work), work.precision, work.world, work.tensor_parallel)


def family_of(work: Work) -> str:
    """Kind of model and of what it learns."""
    return "decoder" if work.is_decoder else work.objective


def counts_of(work: Work, machine: Machine) -> Counts:
    """What an update consists of, with what processes tell each other."""
    counts = update_counts(work)
    empty = replace(machine, floor_s=1.0, bus_bandwidth=float("inf"), network_bandwidth=float("inf"))
    unit = replace(machine, floor_s=0.0, bus_bandwidth=1.0, network_bandwidth=1.0)
    for what, trial in (("call", empty), ("byte", unit)):
        tensor, copies = collectives(work, trial)
        counts[f"tensor.{what}"], counts[f"copies.{what}"] = tensor, copies
    return counts


def experience(work: Work, machine: Machine) -> dict[str, Any]:
    """What has to be known of a work, beside how it went, to learn from it later: fields of an `Entry`."""
    return {
        **asdict(key_of(work, identity().key)),
        "threads": threads_of(work.world),
        "counts": counts_of(work, machine),
    }


def local_machine(processes: int) -> Machine:
    """Plan for this machine: by its calibration and its history where there are, by arithmetic elsewhere."""
    calibration = load()
    if calibration is None:
        return here(processes)
    threads = threads_of(processes)
    return replace(
        here(processes, measure=False),
        peak={dtype: calibration.peak(dtype, threads) for dtype in ("fp32", "bf16")},
        memory_bandwidth=calibration.memory_bytes_per_s / processes,
        bus_bandwidth=calibration.collective_bytes_per_s,
        floor_s=calibration.collective_floor_s,
        save_bytes_per_s=1 / (1 / calibration.disk_write_bytes_per_s + 1 / calibration.hash_bytes_per_s),
        local=Local(calibration, history.read()),
    )
