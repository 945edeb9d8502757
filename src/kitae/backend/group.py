"""Ranks that exchange tensors: the collectives that kitae uses, the same on every backend and every torch.

The functions here know nothing of gradients (see parallel.region) nor of who is in a group (see
parallel.mesh). A group of one does nothing, so that no caller has to ask.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

from kitae.backend.transport import Pending, Reduction, Transport

__all__ = ["ALONE", "Call", "Group", "Meter", "Observer", "Pending", "Reduction", "Unobserved"]

Result = TypeVar("Result")


class Observer(Protocol):
    """Is told of every collective of this process; a watchdog tells from it which rank others wait for."""

    def enter(self) -> None:
        """A collective begins."""
        ...

    def leave(self) -> None:
        """Its result is there."""
        ...

    def touch(self, where: str) -> None:
        """Work goes on, and which; long work without collectives and without files has to say so."""
        ...


class Unobserved:
    """Nobody watches."""

    def enter(self) -> None:
        """Nothing to note."""

    def leave(self) -> None:
        """Nothing to note."""

    def touch(self, where: str) -> None:
        """Nothing to note."""


class Call(NamedTuple):
    """A collective of one kind, among the same ranks, with as many bytes."""

    kind: str
    ranks: tuple[int, ...]
    bytes_in: int
    """Of the tensor that this process gives."""


@dataclass
class Meter:
    """What this process has put into collectives."""

    taken: Counter[Call] = field(default_factory=Counter)
    """How often each was begun."""
    waited_s: float = 0.0
    """Seconds that the results of collectives were waited for."""
    observer: Observer = field(default_factory=Unobserved)

    @property
    def bytes_in(self) -> Counter[str]:
        """Bytes of the tensors given, by kind of collective."""
        total: Counter[str] = Counter()
        for call, count in self.taken.items():
            total[call.kind] += count * call.bytes_in
        return total

    @property
    def calls(self) -> Counter[str]:
        """Number of collectives by kind."""
        total: Counter[str] = Counter()
        for call, count in self.taken.items():
            total[call.kind] += count
        return total


@dataclass(frozen=True)
class Group:
    """Some ranks of the world, of which this process is one."""

    ranks: tuple[int, ...] = (0,)
    """Their numbers in the world, in the order of the group."""
    rank: int = 0
    """Place of this process in the group."""
    transport: Transport | None = None
    """What they exchange tensors with; None in a group of one."""
    meter: Meter = field(default_factory=Meter, compare=False)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    def all_reduce(self, tensor: torch.Tensor, reduction: Reduction = "sum") -> torch.Tensor:
        """Combine the ranks' tensors of one shape, in place; the tensor."""
        self.start_all_reduce(tensor, reduction).wait()
        return tensor

    def all_gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Put the ranks' tensors [n, ...] one behind the other: [size * n, ...]."""
        if self.size == 1:
            return tensor
        output = tensor.new_empty((self.size * tensor.shape[0], *tensor.shape[1:]))
        self.start_all_gather(output, tensor).wait()
        return output

    def reduce_scatter(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum the ranks' tensors [size * n, ...] and keep this rank's part [n, ...]."""
        if self.size == 1:
            return tensor
        output = tensor.new_empty((tensor.shape[0] // self.size, *tensor.shape[1:]))
        self.start_reduce_scatter(output, tensor).wait()
        return output

    def start_all_reduce(self, tensor: torch.Tensor, reduction: Reduction = "sum") -> Pending:
        """Begin `all_reduce`; the tensor is not to be touched before the wait."""
        assert tensor.is_contiguous()
        if self.transport is None:
            return _DONE
        return self._started("all_reduce", tensor, self.transport.all_reduce, tensor, reduction)

    def start_all_gather(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """Begin `all_gather` into the contiguous `output`."""
        if self.transport is None:
            return _copied(output, tensor)
        tensor = tensor.contiguous()
        return self._started("all_gather", tensor, self.transport.all_gather, output, tensor)

    def start_reduce_scatter(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """Begin `reduce_scatter` into the contiguous `output`."""
        if self.transport is None:
            return _copied(output, tensor)
        tensor = tensor.contiguous()
        return self._started("reduce_scatter", tensor, self.transport.reduce_scatter, output, tensor)

    def start_all_to_all(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """Begin to give rank r row r of a tensor [size, n]; row r of contiguous `output` is from rank r."""
        if self.transport is None:
            return _copied(output, tensor)
        tensor = tensor.contiguous()
        return self._started("all_to_all", tensor, self.transport.all_to_all, output, tensor)

    def exchange(self, value: Any) -> list[Any]:
        """Every rank's value (plain Python; not for tensors), in the order of the ranks."""
        if self.transport is None:
            return [value]
        transport = self.transport
        return self._observed(lambda: transport.exchange(value))

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self.transport is not None:
            self._observed(self.transport.barrier)

    def _started(
        self, kind: str, tensor: torch.Tensor, begin: Callable[..., Pending], *arguments: Any
    ) -> Pending:
        self.meter.taken[Call(kind, self.ranks, tensor.nbytes)] += 1
        self.meter.observer.enter()
        return _Metered(begin(*arguments), self.meter)

    def _observed(self, call: Callable[[], Result]) -> Result:
        self.meter.observer.enter()
        begin = time.perf_counter()
        result = call()
        self.meter.waited_s += time.perf_counter() - begin
        self.meter.observer.leave()
        return result


@dataclass(frozen=True)
class _Metered:
    """Tells the meter how long it was waited for."""

    work: Pending
    meter: Meter

    def wait(self) -> None:
        begin = time.perf_counter()
        self.work.wait()
        self.meter.waited_s += time.perf_counter() - begin
        self.meter.observer.leave()


class _Done:
    def wait(self) -> None:
        """Nothing was begun."""


_DONE = _Done()


def _copied(output: torch.Tensor, tensor: torch.Tensor) -> Pending:
    """What a group of one gives."""
    output.copy_(tensor)
    return _DONE


ALONE = Group()
"""The group of a process that is the whole world."""
