"""What the ranks of a group exchange tensors with: processes of torch.distributed, or operations of a graph.

A transport begins collectives and knows nothing of gradients, counts or who asks: `backend/group.py` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
import torch.distributed as dist

Reduction = Literal["sum", "max"]

# torch 2.13 renamed both and warns of the old names; 2.9, which Trn1 needs, has only those.
_ALL_GATHER: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_REDUCE_SCATTER: Callable[..., Any] = (
    getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
)
_OPERATIONS: dict[Reduction, Any] = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


class Pending(Protocol):
    """A collective that was begun."""

    def wait(self) -> None:
        """Return when its result is there."""
        ...


class Transport(Protocol):
    """Begins collectives of one group of ranks. Outputs are contiguous, and are filled when waited for."""

    sums_on_receipt: ClassVar[bool]
    """Whether rows are best summed by the rank that gets them from all, not on their way to it."""

    def all_reduce(self, tensor: torch.Tensor, reduction: Reduction) -> Pending:
        """Combine the ranks' contiguous tensors, in place."""
        ...

    def all_gather(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """Put the ranks' tensors one behind the other."""
        ...

    def reduce_scatter(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """Sum the ranks' tensors and keep this rank's part."""
        ...

    def all_to_all(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """Give rank r row r; row r of the output is from rank r."""
        ...

    def exchange(self, value: Any) -> list[Any]:
        """Every rank's value, plain Python, in the order of the ranks."""
        ...

    def barrier(self) -> None:
        """Wait until every rank is here."""
        ...


@dataclass(frozen=True)
class ProcessGroupTransport:
    """A process group of torch.distributed (gloo or nccl)."""

    handle: dist.ProcessGroup
    through_host: bool = False
    """Whether tensors of a device go through host memory, because the processes cannot read the device's."""
    sums_on_receipt: ClassVar[bool] = True

    def all_reduce(self, tensor: torch.Tensor, reduction: Reduction) -> Pending:
        """See `Transport`."""
        staged = self._staged(tensor)
        work = dist.all_reduce(staged, op=_OPERATIONS[reduction], group=self.handle, async_op=True)
        return _arriving(work, tensor, staged)

    def all_gather(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """See `Transport`."""
        return self._into(_ALL_GATHER, output, tensor)

    def reduce_scatter(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """See `Transport`."""
        return self._into(_reduce_scatter, output, tensor)

    def all_to_all(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """See `Transport`."""
        return self._into(dist.all_to_all_single, output, tensor)

    def exchange(self, value: Any) -> list[Any]:
        """See `Transport`."""
        values: list[Any] = [None] * dist.get_world_size(self.handle)
        dist.all_gather_object(values, value, group=self.handle)
        return values

    def barrier(self) -> None:
        """See `Transport`."""
        dist.barrier(group=self.handle)

    def _into(self, call: Callable[..., Any], output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        source = self._staged(tensor)
        result = output if source is tensor else torch.empty_like(output, device=source.device)
        return _arriving(call(result, source, group=self.handle, async_op=True), output, result)

    def _staged(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.cpu() if self.through_host and tensor.device.type != "cpu" else tensor


def _arriving(work: Any, output: torch.Tensor, result: torch.Tensor) -> Pending:
    """The work itself, or with the copy to the device that follows it."""
    waiting: Pending = work if result is output else _Staged(work, output, result)
    return waiting


@dataclass(frozen=True)
class _Staged:
    """A result on its way, first to host memory and then to the device."""

    work: Any
    output: torch.Tensor
    result: torch.Tensor

    def wait(self) -> None:
        self.work.wait()
        self.output.copy_(self.result)


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
