"""Ranks that exchange tensors: the collectives that kitae uses, the same on every backend and every torch.

The functions here know nothing of gradients (see parallel.region) nor of who is in a group (see
parallel.mesh). A group of one does nothing, so that no caller has to ask.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
import torch.distributed as dist

Reduction = Literal["sum", "max"]

# torch 2.13 renamed both and warns of the old names; 2.9, which Trn1 needs, has only those.
_ALL_GATHER: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_REDUCE_SCATTER: Callable[..., Any] = (
    getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
)
_OPERATIONS: dict[Reduction, Any] = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


def _reduce_scatter(
    output: torch.Tensor, tensor: torch.Tensor, group: dist.ProcessGroup, **options: Any
) -> Any:
    """Begin the transport's own; on gloo, whose own takes 1.5 times as long, exchange parts and sum them."""
    if dist.get_backend(group) != "gloo":
        return _REDUCE_SCATTER(output, tensor, op=dist.ReduceOp.SUM, group=group, **options)
    parts = torch.empty_like(tensor).view(dist.get_world_size(group), *output.shape)
    return _Exchanged(dist.all_to_all_single(parts, tensor, group=group, **options), parts, output)


@dataclass(frozen=True)
class _Exchanged:
    """Every rank's part of what this one keeps, on its way."""

    work: Any
    parts: torch.Tensor
    output: torch.Tensor

    def wait(self) -> None:
        """Sum the parts, in fp32 where they hold fewer digits."""
        self.work.wait()
        dtype = (
            torch.promote_types(self.parts.dtype, torch.float32) if self.parts.is_floating_point() else None
        )
        self.output.copy_(self.parts.sum(0, dtype=dtype))


class Pending(Protocol):
    """A collective that was begun."""

    def wait(self) -> None:
        """Return when its result is there."""
        ...


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


@dataclass
class Meter:
    """What this process has put into collectives."""

    bytes_in: Counter[str] = field(default_factory=Counter)
    """Bytes of the tensors given, by kind of collective."""
    calls: Counter[str] = field(default_factory=Counter)
    waited_s: float = 0.0
    """Seconds that the results of collectives were waited for."""
    observer: Observer = field(default_factory=Unobserved)


@dataclass(frozen=True)
class Group:
    """Some ranks of the world, of which this process is one."""

    ranks: tuple[int, ...] = (0,)
    """Their numbers in the world, in the order of the group."""
    rank: int = 0
    """Place of this process in the group."""
    handle: dist.ProcessGroup | None = None
    """None in a group of one."""
    through_host: bool = False
    """Whether tensors of a device go through host memory, because the transport cannot read the device's."""
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
        return self._start("all_reduce", dist.all_reduce, tensor, tensor, op=_OPERATIONS[reduction])

    def start_all_gather(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """Begin `all_gather` into the contiguous `output`."""
        return self._start("all_gather", _ALL_GATHER, output, tensor.contiguous())

    def start_reduce_scatter(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """Begin `reduce_scatter` into the contiguous `output`."""
        return self._start("reduce_scatter", _reduce_scatter, output, tensor.contiguous())

    def start_all_to_all(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """Begin to give rank r row r of a tensor [size, n]; row r of contiguous `output` is from rank r."""
        return self._start("all_to_all", dist.all_to_all_single, output, tensor.contiguous())

    def exchange(self, value: Any) -> list[Any]:
        """Every rank's value (plain Python; not for tensors), in the order of the ranks."""
        if self.handle is None:
            return [value]
        values: list[Any] = [None] * self.size
        self._observed(lambda: dist.all_gather_object(values, value, group=self.handle))
        return values

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self.handle is not None:
            self._observed(lambda: dist.barrier(group=self.handle))

    def _start(
        self, kind: str, call: Callable[..., Any], output: torch.Tensor, tensor: torch.Tensor, **options: Any
    ) -> Pending:
        if self.handle is None:
            if output is not tensor:
                output.copy_(tensor)
            return _DONE
        self.meter.calls[kind] += 1
        self.meter.bytes_in[kind] += tensor.nbytes
        self.meter.observer.enter()
        staged = self.through_host and tensor.device.type != "cpu"
        host_in = tensor.cpu() if staged else tensor
        host_out = host_in if output is tensor else torch.empty_like(output, device=host_in.device)
        if not staged:
            host_out = output
        arguments = (host_out,) if call is dist.all_reduce else (host_out, host_in)
        work = call(*arguments, group=self.handle, async_op=True, **options)
        return _Started(work, self.meter, output, host_out)

    def _observed(self, call: Callable[[], None]) -> None:
        self.meter.observer.enter()
        begin = time.perf_counter()
        call()
        self.meter.waited_s += time.perf_counter() - begin
        self.meter.observer.leave()


@dataclass(frozen=True)
class _Started:
    work: Any
    meter: Meter
    output: torch.Tensor
    result: torch.Tensor

    def wait(self) -> None:
        begin = time.perf_counter()
        self.work.wait()
        if self.result is not self.output:
            self.output.copy_(self.result)
        self.meter.waited_s += time.perf_counter() - begin
        self.meter.observer.leave()


class _Done:
    def wait(self) -> None:
        """Nothing was begun."""


_DONE = _Done()
ALONE = Group()
"""The group of a process that is the whole world."""
