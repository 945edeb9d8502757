"""A whole training: its phases, hours and money."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from kitae.plan.machine import Machine
from kitae.plan.money import Bill, Rent, bill
from kitae.plan.phases import HOUR, Phase, Stretch, around_s, phase_of, span
from kitae.plan.step_time import flops_by_kind, product_dtype
from kitae.plan.verdict import Verdict, judge


@dataclass(frozen=True)
class Estimate:
    """What a recipe takes on nodes of one kind."""

    machine: Machine
    phases: tuple[Phase, ...]
    verdict: Verdict
    """Of the phase that holds most."""
    rent: Rent
    """What is paid for beside the nodes."""
    text_bytes: int | None = None
    """To be prepared; None: nobody knows, and it is not counted."""
    mtbf_hours: float = float("inf")
    """Mean time between failures of a node."""

    @property
    def steps(self) -> int | None:
        """Updates of all phases."""
        counts = [phase.steps for phase in self.phases]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def tokens(self) -> int | None:
        """Positions of all updates."""
        if self.steps is None:
            return None
        return sum((phase.steps or 0) * phase.tokens_per_step for phase in self.phases)

    def update_s(self, end: int | None = None) -> float | None:
        """Seconds of all updates; `end` 0 and 1 are the interval's."""
        if self.steps is None:
            return None
        return sum(
            (phase.steps or 0) * (phase.time.seconds if end is None else phase.time.interval[end])
            for phase in self.phases
        )

    def train_s(self, end: int | None = None) -> float | None:
        """Seconds of all updates, evaluations and saves."""
        updates = self.update_s(end)
        if updates is None:
            return None
        return updates + sum(phase.evaluate_s + phase.save_s for phase in self.phases)

    @cached_property
    def hours(self) -> dict[str, float] | None:
        """Of what is paid for, by what it is spent on, in the order in which it comes."""
        updates = self.update_s()
        if updates is None:
            return None
        instance = self.machine.instance
        around = around_s(
            self.phases[0].work.backend,
            instance.vcpus if instance is not None else 1,
            text_bytes=self.text_bytes,
            cluster=self.rent.head is not None,
        )
        trained = {
            "train": updates,
            "evaluate": sum(phase.evaluate_s for phase in self.phases),
            "checkpoint": sum(phase.save_s for phase in self.phases),
            "failures": sum(phase.lost_s(self.machine.nodes, self.mtbf_hours) for phase in self.phases),
        }
        order = ("create", "prepare", "compile", "start-up", *trained, "idle", "teardown")
        parts = {**around, **trained}
        return {name: parts[name] / HOUR for name in order if parts[name]}

    @cached_property
    def bill(self) -> Bill | None:
        """What it costs; None for this machine, and where the length is unknown."""
        if self.machine.instance is None or self.hours is None:
            return None
        return bill(self.machine.name, self.machine.nodes, self.hours, self.rent)

    @property
    def utilisation(self) -> float:
        """FLOPs by the formula, without what is recomputed, against the peak of all processes."""
        phase = self.phases[0]
        work = phase.work
        recomputed = 6 / 8 if work.recompute == "full" else 1
        by_kind = flops_by_kind(work)
        useful = by_kind["head"] + recomputed * sum(v for kind, v in by_kind.items() if kind != "head")
        done = useful * work.micro_batches * work.data_parallel
        return done / phase.time.seconds / work.world / self.machine.peak[self.peak_dtype]

    @property
    def peak_dtype(self) -> str:
        """Dtype of the peak that utilisation is of."""
        return product_dtype(self.phases[0].work)

    @property
    def sentence(self) -> str:
        """The verdict."""
        memory, where = self.verdict, f"{self.machine.nodes} x {self.machine.name}"
        text = f"{memory.word}: {memory.share:.0%} of the memory on {where}"
        if self.train_s() is not None:
            low, high = (self.train_s(end) or 0 for end in (0, 1))
            text += f"; {span(low)} to {span(high)} of training"
        if self.bill is not None:
            total = self.bill.total
            text += f"; about ${total:,}" if total is not None else "; its price is unknown: give --price"
        return text + "."


def estimate(
    stretches: Iterable[Stretch],
    machine: Machine,
    *,
    rows: int | None = None,
    rent: Rent | None = None,
    text_bytes: int | None = None,
    mtbf_hours: float = float("inf"),
) -> Estimate:
    """Of phases with works, lengths and distances; `rows` of an epoch, where they are known."""
    made = tuple(phase_of(one, machine, rows) for one in stretches)
    fullest = max((judge(phase.work, machine) for phase in made), key=lambda one: one.share)
    return Estimate(machine, made, fullest, rent or Rent(), text_bytes, mtbf_hours)
