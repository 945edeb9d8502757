"""A world that one process plays alone, to see the programs of its ranks: graphs are collected, never run.

The process is rank r of a mesh of any size. Collectives of the device are operations of the graph, which name
the groups of all ranks (`backend/xla_transport.py`), so that no peer is needed; what ranks tell each other on
the host is answered as if everybody said the same. At each boundary the graph's key and collectives are noted
and its results become placeholders, which have a shape and no memory.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import torch

from kitae.backend.base import Ended, Tensors
from kitae.backend.transport import Pending, Reduction
from kitae.backend.xla import XlaBackend
from kitae.backend.xla_transport import IN_GRAPH, XlaTransport
from kitae.parallel.grid import Partition
from kitae.parallel.mesh import Mesh, mesh_of
from kitae.precompile.hlo import Collective, collectives


@dataclass(frozen=True)
class Echo:
    """Peers on the host that say what this rank says."""

    partition: Partition
    sums_on_receipt: ClassVar[bool] = True

    @property
    def size(self) -> int:
        """Ranks of a group."""
        return len(self.partition[0])

    def all_reduce(self, tensor: torch.Tensor, reduction: Reduction) -> Pending:
        """See `Transport`."""
        if reduction == "sum":
            tensor.mul_(self.size)
        return IN_GRAPH

    def all_gather(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """See `Transport`."""
        output.copy_(tensor.repeat(self.size, *(1 for _ in tensor.shape[1:])))
        return IN_GRAPH

    def reduce_scatter(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """See `Transport`."""
        output.copy_(tensor[: len(output)] * self.size)
        return IN_GRAPH

    def all_to_all(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """See `Transport`."""
        output.copy_(tensor)
        return IN_GRAPH

    def exchange(self, value: Any) -> list[Any]:
        """See `Transport`."""
        return [value] * self.size

    def barrier(self) -> None:
        """Nobody else is waited for."""


def traced_mesh(world_size: int, tp_size: int, rank: int) -> Mesh:
    """The groups of a rank whose peers are not there."""
    return mesh_of(world_size, tp_size, rank, control=Echo, device=XlaTransport)


@dataclass(frozen=True)
class Program:
    """A graph that a boundary ended."""

    graph: str
    key: str | None
    inputs: dict[str, tuple[tuple[int, ...], str]]
    """Shapes and dtypes of what it was fed with."""
    collectives: Counter[Collective]
    operations: int
    """Lines of its HLO, to say how large it is."""


class TracedBackend(XlaBackend):
    """The device of a rank that is traced: whatever would run a program raises."""

    def __init__(self) -> None:
        super().__init__()
        self._builder: Any = import_module("torch_xla.core.xla_builder")
        self._lib.core._set_allow_execution(False)
        self.programs: list[Program] = []
        """In the order of the boundaries."""

    @property
    def pretends(self) -> bool:
        """Values cannot be read back."""
        return True

    def boundary(
        self, graph: str, inputs: Tensors | None = None, outputs: Sequence[torch.Tensor] = ()
    ) -> None:
        """Note the program that makes `outputs`, and let everything that is not computed be a placeholder."""
        key = self.graph_key(outputs)
        text = self._lib.core._get_xla_tensors_hlo([*outputs]) if outputs else ""
        given = {name: (tuple(one.shape), str(one.dtype)) for name, one in (inputs or {}).items()}
        self.programs.append(Program(graph, key, given, collectives(text), text.count("\n")))
        del text
        self.forget()
        self.observer.ended(graph, inputs or {}, Ended(key))

    def synchronize(self) -> None:
        """Nothing was started."""

    @torch.no_grad()
    def forget(self) -> None:
        """Let every tensor that is not computed be a placeholder, and begin a new order of collectives."""
        for tensor in self._pending():
            tensor.copy_(self.placeholder(tensor.shape, tensor.dtype))
        self._lib.core._set_all_reduce_token(str(self.device), None)

    def placeholder(self, shape: Iterable[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor of the device without memory, which a program takes as an input."""
        tensor: torch.Tensor = self._builder.create_placeholder_tensor(tuple(shape), dtype)
        return tensor

    def _pending(self) -> Iterator[torch.Tensor]:
        """Tensors of the device that Python knows, less views, which follow those that they are of."""
        known = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
        known += [one.grad for one in known if one.is_leaf and one.grad is not None]
        seen: set[int] = set()
        for tensor in known:
            if tensor.device == self.device and not tensor._is_view() and id(tensor) not in seen:
                seen.add(id(tensor))
                if self._lib.core._check_tensor_need_materialization([tensor])[0]:
                    yield tensor
