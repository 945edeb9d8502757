"""The rows of every parameter that this rank updates, cut out of tensors (`parallel/rows.py` says which)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kitae.backend.group import Group
from kitae.parallel.layout import ParameterLayout
from kitae.parallel.region import in_graph, of_rank
from kitae.parallel.rows import row_range, rows_each, share_layouts

__all__ = ["Shares", "row_range", "rows_each", "share_layouts"]


class Shares:
    """The rows of this rank: all of every parameter in a group of one."""

    def __init__(self, layouts: Sequence[ParameterLayout], group: Group) -> None:
        self.group = group
        self.layouts = share_layouts(layouts, group.size, group.rank)
        """Of the rows of this rank, with the names and the order of the parameters."""
        self.shapes = {layout.name: layout.shape for layout in layouts}
        """Of the local parameters, all rows."""

    def rows(self, name: str) -> slice:
        """The rows of parameter `name` that this rank has; may be none."""
        return row_range(self.shapes[name][0], self.group.size, self.group.rank)

    def cut(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """View this rank's rows of a local tensor, without gradient; the tensor itself in a group of one."""
        if self.group.size == 1:
            return tensor
        # The layout of a scalar parameter is one row.
        return tensor.detach().view(self.shapes[name])[self.rows(name)]

    def take(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Copy or view this rank's rows of a local tensor, to be read.

        Where all ranks have equally many, the graph that they become is the same on all.
        """
        rows, *rest = self.shapes[name]
        if self.group.size == 1 or rows % self.group.size or not in_graph(tensor.device):
            return self.cut(name, tensor)
        parts = tensor.detach().view(self.group.size, -1, *rest)
        return parts.index_select(0, of_rank(self.group.rank, tensor.device)).squeeze(0)
