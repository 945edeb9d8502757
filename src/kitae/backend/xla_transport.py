"""Collectives as operations of a graph that torch-xla collects; each process, one a core, has a program.

Every process names the groups of *all* ranks, not only its own, so that all have the same program: XLA calls
them replica groups. Results are known to be there when the graph has run, so that there is nothing to wait
for; a host read cuts the graph, and nobody here does one.

`pin_layout` is False throughout. A pinned all-gather does not exist: torch-xla makes it of an all-reduce over
tensors that each rank pads to the size of all, which sends `size` times as much and makes every rank's
program another one; and XLA refuses a graph that mixes pinned and free ones. What pinning is for, processes
whose programs differ, is excluded by the same program on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from kitae.backend.transport import Pending, Reduction


class _InGraph:
    def wait(self) -> None:
        """The operation is in the graph."""


IN_GRAPH = _InGraph()
"""What has not to be waited for."""


@dataclass(frozen=True)
class XlaTransport:
    """The group of a partition of the world that this process is in; all groups are of one size."""

    partition: tuple[tuple[int, ...], ...]
    """All its groups."""
    sums_on_receipt: ClassVar[bool] = False

    @property
    def size(self) -> int:
        """Ranks of each group."""
        return len(self.partition[0])

    def all_reduce(self, tensor: torch.Tensor, reduction: Reduction) -> Pending:
        """See `Transport`."""
        return _set(tensor, _xla()._xla_all_reduce(reduction, tensor, 1.0, self._groups(), False))

    def all_gather(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """See `Transport`."""
        import torch_xla.core.xla_model as xm

        return _set(output, xm.all_gather(tensor, 0, self._groups(), pin_layout=False))

    def reduce_scatter(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """See `Transport`."""
        import torch_xla.core.xla_model as xm

        parts = xm.reduce_scatter(
            xm.REDUCE_SUM, tensor, 1.0, 0, self.size, groups=self._groups(), pin_layout=False
        )
        return _set(output, parts)

    def all_to_all(self, output: torch.Tensor, tensor: torch.Tensor) -> Pending:
        """See `Transport`."""
        import torch_xla.core.xla_model as xm

        return _set(output, xm.all_to_all(tensor, 0, 0, self.size, groups=self._groups(), pin_layout=False))

    def exchange(self, value: Any) -> list[Any]:
        """Plain Python does not travel in graphs; see `Mesh.control`."""
        raise NotImplementedError("values of the host go over the control group")

    def barrier(self) -> None:
        """See `exchange`."""
        raise NotImplementedError("processes wait for each other over the control group")

    def _groups(self) -> list[list[int]]:
        return [list(group) for group in self.partition]


def _set(output: torch.Tensor, result: torch.Tensor) -> Pending:
    """Let `output`, and what views the same memory, be the result."""
    output.copy_(result.view(output.shape))
    return IN_GRAPH


def _xla() -> Any:
    import torch_xla

    return torch_xla._XLAC
