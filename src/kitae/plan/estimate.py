"""A whole training: its phases, hours and money, with the assumptions that it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from math import ceil
from typing import Any

from kitae.model.memory import count_parameters
from kitae.plan.efficiency import efficiency_of
from kitae.plan.machine import Machine
from kitae.plan.money import Bill, Rent, bill, per_million_tokens
from kitae.plan.step_time import StepTime, flops_by_kind, product_dtype, step_time
from kitae.plan.verdict import Verdict, judge
from kitae.plan.work import Work
from kitae.recipe.base import Duration

HOUR = 3600
COMPILE_S = {"xla": 600.0, "neuron": 600.0, "cuda": 60.0, "cpu": 0.0}
"""Of all graphs, before the first step: 10 minutes were seen for Llama 3.1 8B on four trn1.32xlarge."""
START_S = {"xla": 120.0, "neuron": 120.0, "cuda": 60.0, "cpu": 10.0}
"""From the start of the processes to the first step, without compilation."""
WARM_UP_S = {"xla": 60.0, "neuron": 60.0, "cuda": 10.0, "cpu": 0.0}
"""What the first update takes longer than others: 59 s were seen for Llama 3.1 8B on four trn1.32xlarge."""
IDLE_TAIL_S = 600.0
"""Rented nodes stay for so long after the last job: ParallelCluster's default."""
SAVE_BYTES_PER_S = 5e8
"""What a node writes of a checkpoint."""


@dataclass(frozen=True)
class Phase:
    """One phase of the training."""

    name: str | None
    work: Work
    steps: int | None
    """Updates; None where the duration is in epochs of a text that nobody has counted yet."""
    saves: int
    time: StepTime

    @property
    def tokens_per_step(self) -> int:
        """Positions of an update, padded ones included."""
        return self.work.global_rows * self.work.length

    @property
    def tokens_per_day(self) -> float:
        """In the middle of the interval."""
        return self.tokens_per_step / self.time.seconds * 24 * HOUR

    @property
    def save_s(self) -> float:
        """All saves together, which the training waits for."""
        return self.saves * count_parameters(self.work.parameters) * 12 / SAVE_BYTES_PER_S


@dataclass(frozen=True)
class Estimate:
    """What a recipe takes on nodes of one kind."""

    machine: Machine
    phases: tuple[Phase, ...]
    verdict: Verdict
    """Of the phase that holds most."""
    rent: Rent
    """What is paid for beside the nodes."""

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

    def train_s(self, end: int | None = None) -> float | None:
        """Seconds of all updates and saves; `end` 0 and 1 are the interval's."""
        if self.steps is None:
            return None
        seconds = 0.0
        for phase in self.phases:
            one = phase.time.seconds if end is None else phase.time.interval[end]
            seconds += (phase.steps or 0) * one + phase.save_s
        return seconds

    @cached_property
    def hours(self) -> dict[str, float] | None:
        """Of what is paid for, by what it is spent on."""
        train = self.train_s()
        if train is None:
            return None
        backend = self.phases[0].work.backend
        parts = {
            "compile": COMPILE_S[backend],
            "start": START_S[backend] + WARM_UP_S[backend],
            "train": train,
            "idle": IDLE_TAIL_S,
        }
        return {name: seconds / HOUR for name, seconds in parts.items() if seconds}

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
    phases: Sequence[tuple[str | None, Work, Duration, Duration | None]],
    machine: Machine,
    *,
    rows: int | None = None,
    rent: Rent | None = None,
) -> Estimate:
    """Of phases with works, lengths and distances of saves; `rows` of an epoch, where they are known."""
    made = tuple(_phase(name, work, length, every, machine, rows) for name, work, length, every in phases)
    fullest = max((judge(phase.work, machine) for phase in made), key=lambda one: one.share)
    return Estimate(machine, made, fullest, rent or Rent())


def _phase(
    name: str | None, work: Work, length: Duration, every: Duration | None, machine: Machine, rows: int | None
) -> Phase:
    steps = steps_of(length, work, rows)
    apart = steps_of(every, work, rows) if every is not None else None
    saves = 1 + (steps // apart if steps and apart else 0)
    return Phase(name, work, steps, saves, step_time(work, machine))


def steps_of(length: Duration, work: Work, rows: int | None) -> int | None:
    """Updates of a duration; None for epochs of rows that nobody has counted."""
    if length.unit == "epochs" and rows is None:
        return None
    return length.steps(
        tokens_per_step=work.global_rows * work.length, samples=rows or 0, global_batch_size=work.global_rows
    )


def assumptions(found: Estimate) -> Iterator[str]:
    """What the numbers rest on, a line each."""
    work, machine = found.phases[0].work, found.machine
    reached = efficiency_of(work)
    peak = f"{machine.peak[found.peak_dtype] / 1e12:.3g} TFLOP/s ({found.peak_dtype} peak of a process)"
    yield (
        f"products reach {reached.products:.0%} of {peak}: {reached.basis}; the interval is a factor of "
        f"{1 + reached.spread:g} either way"
    )
    if work.backend == "cpu":
        yield "bf16 on a CPU is taken to be three times as slow as fp32"
    yield "activations: closed form, within a tenth on CPUs; compiled programs may hold more or less"
    if machine.instance is not None:
        compile_min = COMPILE_S[work.backend] / 60
        start_min = (START_S[work.backend] + WARM_UP_S[work.backend]) / 60
        yield (
            f"compiling takes {compile_min:g} min, starting {start_min:g} min, and nodes stay "
            f"{IDLE_TAIL_S / 60:g} min after the end; no failures and no waiting for nodes"
        )
        yield f"a node writes checkpoints at {SAVE_BYTES_PER_S / 1e9:g} GB/s, and the training waits"


def as_json(found: Estimate) -> dict[str, Any]:
    """All of it, for machines. Bytes, seconds and US dollars; money as text, in decimals."""
    memory = found.verdict
    return {
        "machine": {
            "name": found.machine.name,
            "nodes": found.machine.nodes,
            "devices": found.machine.devices,
        },
        "verdict": memory.word,
        "sentence": found.sentence,
        "memory": _memory(memory),
        "phases": [_phase_json(phase) for phase in found.phases],
        "steps": found.steps,
        "tokens": found.tokens,
        "train_s": found.train_s(),
        "train_s_interval": None if found.steps is None else [found.train_s(0), found.train_s(1)],
        "utilisation": found.utilisation,
        "hours": found.hours,
        "cost": _cost(found),
        "assumptions": list(assumptions(found)),
    }


def _memory(verdict: Verdict) -> dict[str, Any]:
    memory = verdict.memory
    return {
        "state": memory.state,
        "kept_activations": memory.kept,
        "loss": memory.loss,
        "backward": memory.backward,
        "embedding": memory.embedding,
        "update": memory.update,
        "buckets": memory.buckets,
        "peak": memory.peak,
        "device_used": verdict.device_used,
        "device_bytes": verdict.device_bytes,
        "host_used": verdict.host_used,
        "host_bytes": verdict.host_bytes,
        "changes": list(verdict.changes),
    }


def _phase_json(phase: Phase) -> dict[str, Any]:
    time = phase.time
    parts: Mapping[str, float] = {
        **{f"products.{kind}": seconds for kind, seconds in time.products.items()},
        "weights": time.weights,
        "dropout": time.dropout,
        "tensor_parallel": time.tensor_parallel,
        "copies": time.copies,
        "optimizer": time.optimizer,
    }
    return {
        "name": phase.name,
        "steps": phase.steps,
        "step_s": time.seconds,
        "step_s_interval": list(time.interval),
        "parts_s": dict(parts),
        "micro_batches": phase.work.micro_batches,
        "tokens_per_day": phase.tokens_per_day,
    }


def _cost(found: Estimate) -> dict[str, Any] | None:
    if found.bill is None:
        return None
    total = found.bill.total
    per = per_million_tokens(total, found.tokens) if total is not None and found.tokens else None
    return {
        "lines": [{"item": one.item, "how": one.how, "usd": _text(one.usd)} for one in found.bill.lines],
        "usd": _text(total),
        "usd_per_million_tokens": _text(per),
    }


def _text(usd: Decimal | None) -> str | None:
    return None if usd is None else str(usd)


def span(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{ceil(seconds)} s" if seconds >= 10 else f"{seconds:.2g} s"
