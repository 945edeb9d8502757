"""The cheapest and the fastest way to spread a training, among all that fit.

For given nodes and cut, of each phase the largest micro-batch that fits is the fastest one: products are the
same, and weights go through memory, and collectives wait, less often. So of micro-batches only that is timed;
the rest is looked at whole. All processes of all nodes train.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kitae.catalog import Instance
from kitae.errors import WeightsError
from kitae.plan.machine import Machine, rented
from kitae.plan.money import Rent, beside_an_hour, price_in
from kitae.plan.phases import HOUR, Stretch, around_s, phase_of
from kitae.plan.step_time import step_time
from kitae.plan.verdict import TIGHT, judge
from kitae.plan.work import Work, layouts_of

MODES = ("none", "selective", "full")


@dataclass(frozen=True)
class Way:
    """One way to spread a training, timed."""

    instance: str
    nodes: int
    tensor_parallel: int
    sequence_parallel: bool
    zero1: bool
    recompute: tuple[str, ...]
    """Of each phase."""
    rows: tuple[int, ...]
    """Of a micro-batch, of each phase."""
    works: tuple[Work, ...]
    share: float
    """Of the memory, where it is fullest."""
    train_s: float
    longest_s: float
    """Until the last update by the interval's end, compilation and start included."""
    usd: float | None
    """None: a price is unknown."""

    @property
    def order(self) -> tuple[object, ...]:
        """Decides between ways that are as good: the simpler one."""
        return (
            *(self.nodes, self.tensor_parallel, self.sequence_parallel, self.zero1),
            *(tuple(map(MODES.index, self.recompute)), self.instance),
        )


@dataclass(frozen=True)
class Search:
    """What is looked through: phases (as on one process), machines and numbers of nodes."""

    stretches: tuple[Stretch, ...]
    most_nodes: int
    rent: Rent
    rows_of_epoch: int | None = None
    text_bytes: int | None = None

    def ways(self, instance: Instance) -> Iterator[Way]:
        """All that fit on an instance: of each cut, the best micro-batches for each kind of recomputation."""
        for nodes in node_counts(instance, self.most_nodes):
            machine = rented(instance, nodes)
            for cut in self._cuts(instance, nodes):
                found = [self._best_rows(cut, index, machine) for index in range(len(self.stretches))]
                for mode in range(len(MODES)):
                    chosen = [one[mode] for one in found]
                    if all(chosen):
                        yield self._way(machine, [one for one in chosen if one is not None])

    def _cuts(self, instance: Instance, nodes: int) -> Iterator[dict[str, object]]:
        """Cuts of the model, and copies, that use all processes."""
        processes = nodes * instance.devices
        for size in self._degrees:
            copies, rest = divmod(processes, size)
            # A copy stays within a node, or takes whole ones.
            if rest or (size > instance.devices and size % instance.devices):
                continue
            for sequence in (False, True)[: 1 + (size > 1)]:
                for zero1 in (False, True)[: 1 + (copies > 1)]:
                    yield {
                        "tensor_parallel": size,
                        "data_parallel": copies,
                        "sequence_parallel": sequence,
                        "zero1": zero1,
                    }

    @cached_property
    def _degrees(self) -> list[int]:
        """Tensor-parallel sizes that the model's layout allows, and the links of the machine."""
        work = self.stretches[0].work
        return [
            size
            for size in range(1, 65)
            if replace(work, tensor_parallel=size).has_ring and is_allowed(work, size)
        ]

    def _best_rows(self, cut: dict[str, object], index: int, machine: Machine) -> list[Work | None]:
        """The work of a phase with the largest micro-batch that fits, for each kind of recomputation."""
        work = replace(self.stretches[index].work, **cut)  # type: ignore[arg-type]
        each, uneven = divmod(work.global_rows, work.data_parallel)
        if uneven:
            return [None] * len(MODES)
        return [
            next(
                (
                    trial
                    for rows in _divisors(each)
                    if _cuttable(trial := replace(work, rows=rows, recompute=mode))
                    and judge(trial, machine, advise=False).share <= TIGHT
                ),
                None,
            )
            for mode in MODES
        ]

    def _way(self, machine: Machine, works: Sequence[Work]) -> Way:
        pairs = zip(self.stretches, works, strict=True)
        phases = [phase_of(one._replace(work=work), machine, self.rows_of_epoch) for one, work in pairs]
        instance = machine.instance
        assert instance is not None, "made of the catalogue"
        around = around_s(
            works[0].backend, instance.vcpus, text_bytes=self.text_bytes, cluster=self.rent.head is not None
        )
        beside = sum(phase.evaluate_s + phase.save_s for phase in phases)
        seconds = beside + sum((phase.steps or 0) * phase.time.seconds for phase in phases)
        longest = beside + sum((phase.steps or 0) * phase.time.interval[1] for phase in phases)
        return Way(
            instance=machine.name,
            nodes=machine.nodes,
            tensor_parallel=works[0].tensor_parallel,
            sequence_parallel=works[0].sequence_parallel,
            zero1=works[0].zero1,
            recompute=tuple(work.recompute for work in works),
            rows=tuple(work.rows for work in works),
            works=tuple(works),
            share=max(judge(work, machine, advise=False).share for work in works),
            train_s=seconds,
            longest_s=longest + around["compile"] + around["start-up"],
            usd=self._usd(machine, around, seconds),
        )

    def _usd(self, machine: Machine, around: Mapping[str, float], seconds: float) -> float | None:
        price, beside = price_in(machine.name, self.rent), beside_an_hour(self.rent)
        if price is None or beside is None:
            return None
        on_all = around["compile"] + around["start-up"] + seconds + around["idle"]
        node_s = machine.nodes * on_all + around["prepare"]
        whole = on_all + around["prepare"] + around["create"] + around["teardown"]
        return (float(price) * node_s + float(beside) * whole) / HOUR


def node_counts(instance: Instance, most: int) -> list[int]:
    """1, 2, 4 and so on, and the most, as far as machines of this kind can talk to each other."""
    return sorted({most, *(1 << power for power in range(most.bit_length()))}) if instance.efa else [1]


def is_allowed(work: Work, size: int) -> bool:
    """Whether the model's layout can be cut for so many processes."""
    try:
        return bool(layouts_of(replace(work.config, num_layers=1), work.tied, size))
    except WeightsError:
        return False


def _divisors(number: int) -> list[int]:
    """The largest first."""
    small = [size for size in range(1, int(number**0.5) + 1) if number % size == 0]
    return sorted({*small, *(number // size for size in small)}, reverse=True)


def _cuttable(work: Work) -> bool:
    return not work.sequence_parallel or work.tokens % work.tensor_parallel == 0


Aim = Callable[[Way], float]


def cheapest(ways: Sequence[Way]) -> Way | None:
    """The one that costs least; None where no price is known."""
    priced = [one for one in ways if one.usd is not None]
    return min(priced, key=lambda one: (one.usd, one.order)) if priced else None


def fastest(ways: Sequence[Way]) -> Way | None:
    """The one that is done first, by the hours of training."""
    return min(ways, key=lambda one: (one.train_s, one.order)) if ways else None


def bound(way: Way, machine: Machine) -> tuple[str, float]:
    """What an update of the first phase spends most time in, and which share of it that is."""
    time = step_time(way.works[0], machine)
    parts = {
        "matrix products": sum(time.products.values()),
        "weights and gradient sums through memory": time.weights,
        "attention's probabilities through memory": time.dropout,
        "collectives of tensor parallelism": time.tensor_parallel,
        "the exchange between copies": time.copies,
        "the optimizer": time.optimizer,
        "the host between updates": time.host,
    }
    name = max(parts, key=lambda one: parts[one])
    return name, parts[name] / time.seconds


DIMENSIONS: dict[str, Callable[[Way], object]] = {
    "instance": lambda way: way.instance,
    "nodes": lambda way: way.nodes,
    "parallel.tensor_parallel_size": lambda way: way.tensor_parallel,
    "parallel.sequence_parallel": lambda way: way.sequence_parallel,
    "parallel.zero1": lambda way: way.zero1,
    "training.recompute": lambda way: way.recompute,
}
"""What ways differ in, beside micro-batches."""


def next_best(way: Way, ways: Sequence[Way], aim: Aim) -> Iterator[tuple[str, Way, float]]:
    """Of each dimension, the best way that has another value there, and what share it loses of the aim."""
    for name, value in DIMENSIONS.items():
        others = [one for one in ways if value(one) != value(way)]
        if others:
            other = min(others, key=lambda one: (aim(one), one.order))
            yield name, other, aim(other) / aim(way) - 1
