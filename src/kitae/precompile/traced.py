"""A world that one process plays alone, to see the programs of its ranks: graphs are collected, never run.

The process is rank r of a mesh of any size. Collectives of the device are operations of the graph, which name
the groups of all ranks (`backend/xla_transport.py`), so that no peer is needed; what ranks tell each other on
the host is answered as if everybody said the same. At each boundary the graph's key and collectives are noted
and its results become placeholders, which have a shape and no memory.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Sequence
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

_TORCH: Any = torch
"""Whose functions for views of functional tensors have no types."""


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
        gc.collect()
        gc.freeze()  # half a million objects of libraries would be gone through at each boundary
        self.programs: list[Program] = []
        """In the order of the boundaries."""
        self.repeats = False
        """Whether what comes is like what came, and nothing of it is collected."""

    @property
    def pretends(self) -> bool:
        """Values cannot be read back."""
        return True

    def boundary(
        self, graph: str, inputs: Tensors | None = None, outputs: Sequence[torch.Tensor] = ()
    ) -> None:
        """Note the program that makes `outputs` and whatever else is not computed, as a run would start it.

        What it makes becomes placeholders. A boundary behind which nothing is left notes nothing.
        """
        if self.repeats:
            return
        results = [*outputs, *self._others(outputs)]
        if any(self._lib.core._check_tensor_need_materialization(results)):
            self._note(graph, inputs or {}, results)
        self.forget()

    def _note(self, graph: str, inputs: Tensors, results: Sequence[torch.Tensor]) -> None:
        key, text = self.graph_key(results), self._lib.core._get_xla_tensors_hlo([*results])
        given = {name: (tuple(one.shape), str(one.dtype)) for name, one in inputs.items()}
        self.programs.append(Program(graph, key, given, collectives(text), text.count("\n")))
        self.observer.ended(graph, inputs, Ended(key))

    def synchronize(self) -> None:
        """Nothing was started."""

    @torch.no_grad()
    def forget(self) -> None:
        """Let every tensor that is not computed be a placeholder, and begin a new order of collectives.

        First for those who look at the same memory, then for each by itself, below what torch knows of views:
        so it is when a program has been started.
        """
        values: dict[int, torch.Tensor] = {}
        pending = [
            (one, values.setdefault(self._id(one), self.placeholder(one.shape, one.dtype)))
            for one in self._pending()
        ]
        for tensor, value in pending:
            if not tensor._is_view():
                tensor.copy_(value)
        for tensor, value in pending:
            _TORCH._sync(tensor)
            self._lib.core._replace_xla_tensor(tensor, value)
        self._lib.core._set_all_reduce_token(str(self.device), None)

    def placeholder(self, shape: Iterable[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor of the device without memory, which a program takes as an input."""
        tensor: torch.Tensor = self._builder.create_placeholder_tensor(tuple(shape), dtype)
        return tensor

    def _others(self, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Tensors that are not computed and not among the outputs, in the order in which they were made."""
        known = {self._id(one) for one in outputs}
        others = {self._id(one): one for one in self._pending()}
        return [others[number] for number in sorted(others.keys() - known)]

    def _id(self, tensor: torch.Tensor) -> int:
        """Number of what the device knows of a tensor; aliases of all of it have the same."""
        return int(self._lib.core._xla_get_tensor_id(tensor))

    def _pending(self) -> list[torch.Tensor]:
        """Tensors of the device that Python knows and that are not computed."""
        gc.collect()
        known = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
        known += [one.grad for one in known if one.is_leaf and one.grad is not None]
        tensors = [*{id(one): one for one in known if one.device == self.device}.values()]
        needed = self._lib.core._check_tensor_need_materialization(tensors)
        return [one for one, need in zip(tensors, needed, strict=True) if need]
