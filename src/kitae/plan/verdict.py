"""Whether a training fits, and the nearest changes that would make it fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kitae.catalog import instances
from kitae.errors import WeightsError
from kitae.plan.machine import Machine, rented
from kitae.plan.memory import Memory, memory_of
from kitae.plan.work import Work

TIGHT = 0.8
"""Above this share of the memory, what no formula knows (fragments, compiled programs) may be too much."""
PROGRAM_BYTES = {"xla": 500_000_000, "neuron": 500_000_000, "cuda": 1_000_000_000, "cpu": 400_000_000}
"""Code, runtime and libraries of a process, where its tensors lie, by backend: an assumption."""
HOST_BYTES = 3_000_000_000
"""Of a process in the memory of its host, beside its part of the weights, which come there first: assumed."""
COMPILER_BYTES = 16_000_000_000
"""Of the compiler in the memory of a host, while graphs are compiled: an assumption."""

COMPILES = ("xla", "neuron")
"""Backends whose graphs a compiler of their own makes, on the host."""


@dataclass(frozen=True)
class Verdict:
    """How full a process and a host get."""

    memory: Memory
    device_used: int
    """Bytes of a process at its fullest, its program included."""
    device_bytes: int
    """Bytes that there are for it."""
    host_used: int
    """Bytes of a host while weights are loaded or graphs compiled."""
    host_bytes: int
    changes: tuple[str, ...] = ()
    """What would make it fit, the smallest change first."""

    @property
    def share(self) -> float:
        """Of the memory, where it is fuller."""
        return max(self.device_used / self.device_bytes, self.host_used / self.host_bytes)

    @property
    def word(self) -> str:
        """fits, tight or does not fit."""
        return "fits" if self.share <= TIGHT else "tight" if self.share <= 1 else "does not fit"


def judge(work: Work, machine: Machine, *, advise: bool = True) -> Verdict:
    """How full it gets and, where that is too much, what to change."""
    memory = memory_of(work)
    used = memory.peak + PROGRAM_BYTES[work.backend]
    found = Verdict(memory, used, machine.device_bytes, _host(work, machine, memory), machine.host_bytes)
    if not advise or found.share <= TIGHT:
        return found
    return replace(found, changes=tuple(_changes(work, machine)))


def _host(work: Work, machine: Machine, memory: Memory) -> int:
    """On a CPU the processes' own memory; elsewhere what they load, or the compiler takes."""
    processes = min(machine.devices, work.world)
    if machine.shared_memory:
        return processes * (memory.peak + PROGRAM_BYTES[work.backend])
    loading = processes * (HOST_BYTES + memory.state["parameters"])
    return max(loading, COMPILER_BYTES if work.backend in COMPILES else 0)


def _changes(work: Work, machine: Machine) -> Iterator[str]:
    """One change that makes it fit for each kind; together with full recomputation where none does alone."""
    found = [line for kind in _KINDS for line in _first(kind(work, machine), machine)]
    for line, other, where in _larger(work, machine) if not found else ():
        if judge(other, where, advise=False).share <= TIGHT:
            found.append(line)
            break
    if not found:
        full = replace(work, recompute="full", rows=1)
        found = [
            f"{line}, with training.micro_batch_size=1 and training.recompute=full"
            for kind in _KINDS
            for line in _first(kind(full, machine), machine)
        ]
    yield from found


def _first(candidates: Iterator[tuple[str, Work, int]], machine: Machine) -> list[str]:
    for line, work, nodes in candidates:
        if judge(work, replace(machine, nodes=nodes), advise=False).share <= TIGHT:
            return [line]
    return []


def _smaller_rows(work: Work, machine: Machine) -> Iterator[tuple[str, Work, int]]:
    for rows in range(work.rows - 1, 0, -1):
        if work.rows % rows == 0:
            yield f"training.micro_batch_size={rows}", replace(work, rows=rows), machine.nodes


def _recomputed(work: Work, machine: Machine) -> Iterator[tuple[str, Work, int]]:
    modes = ("none", "selective", "full")
    for mode in modes[modes.index(work.recompute) + 1 :]:
        yield f"training.recompute={mode}", replace(work, recompute=mode), machine.nodes


def _sharded(work: Work, machine: Machine) -> Iterator[tuple[str, Work, int]]:
    if work.data_parallel > 1 and not work.zero1:
        yield "parallel.zero1=true", replace(work, zero1=True), machine.nodes


def _cut(work: Work, machine: Machine) -> Iterator[tuple[str, Work, int]]:
    """More processes for each copy, on the same machines, or on more of them when the copies run out."""
    for size in (2, 4, 8, 16, 32, 64):
        trial = replace(work, tensor_parallel=size, sequence_parallel=True)
        if size <= work.tensor_parallel or not _allowed(trial):
            continue
        copies = max(1, work.world // size)
        nodes = max(machine.nodes, -(-size // machine.devices))
        if nodes > machine.nodes and not _linked(machine):
            return
        text = f"parallel.tensor_parallel_size={size} with parallel.sequence_parallel=true"
        more = f" on {nodes} nodes" if nodes > machine.nodes else ""
        yield text + more, replace(trial, data_parallel=copies), nodes


def _more_nodes(work: Work, machine: Machine) -> Iterator[tuple[str, Work, int]]:
    if not _linked(machine):
        return
    for factor in (2, 4, 8, 16):
        copies = work.data_parallel * factor
        if work.global_rows % (copies * work.rows) == 0:
            more = replace(work, data_parallel=copies, zero1=True)
            yield (
                f"target.nodes={machine.nodes * factor} with parallel.zero1=true",
                more,
                machine.nodes * factor,
            )


def _linked(machine: Machine) -> bool:
    """Whether there can be more nodes, with collectives between them."""
    return machine.instance is not None and machine.instance.efa


def _larger(work: Work, machine: Machine) -> Iterator[tuple[str, Work, Machine]]:
    """One machine of the same kind with more processes, on which a copy is cut over more of them."""
    if machine.instance is None:
        return
    for other in instances().values():
        if other.backend != machine.instance.backend or other.devices <= machine.devices:
            continue
        for size in (8, 16, 32, 64):
            trial = replace(work, tensor_parallel=size, sequence_parallel=True)
            trial = replace(trial, data_parallel=max(1, other.devices // size))
            if size <= other.devices and _allowed(trial):
                cut = f"parallel.tensor_parallel_size={size} with parallel.sequence_parallel=true"
                yield f"{cut} on --instance {other.name}", trial, rented(other, 1)


def _allowed(work: Work) -> bool:
    if work.tokens % work.tensor_parallel or not work.has_ring:
        return False
    try:
        return bool(replace(work, config=replace(work.config, num_layers=1)).layouts)
    except WeightsError:
        return False


_KINDS = (_smaller_rows, _recomputed, _sharded, _cut, _more_nodes)
