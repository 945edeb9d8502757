"""What several ranks hold of a local tensor: pieces or, in a graph, a form that is the same on all ranks.

Which rows of a fused parameter's share are of a KV head, that neighbours hold too, differs from one
data-parallel rank to the next. In a graph that must show in no shape: rows then take part by a factor of 1
or 0, which is an input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from kitae.parallel.grid import sets_of_holders
from kitae.parallel.layout import ParameterLayout, Piece
from kitae.parallel.mesh import Mesh
from kitae.parallel.region import in_graph, of_rank


@dataclass(frozen=True)
class Held:
    """A part of a gradient that `replicas` ranks have a part of each."""

    replicas: int
    tensor: torch.Tensor
    rows: torch.Tensor | None = None
    """[rows, 1, ...]: 1 for those that are, 0 for those that are not; None where all are."""

    def given(self) -> torch.Tensor:
        """What this rank gives to the sum."""
        return self.tensor if self.rows is None else self.tensor * self.rows

    def take(self, summed: torch.Tensor) -> None:
        """Let the sum be the gradient."""
        own = summed if self.rows is None else torch.where(self.rows > 0, summed, self.tensor)
        self.tensor.copy_(own)


def holders_of(layout: ParameterLayout, tensor: torch.Tensor) -> Iterator[Held]:
    """The parts of a gradient by how many ranks hold them."""
    if not in_graph(tensor.device):
        for piece, part in pieces_in(layout, tensor):
            yield Held(piece.replicas, part)
        return
    for replicas in sorted(layout.holders - {1}):
        rows = [piece.replicas == replicas for piece in layout.pieces]
        yield Held(replicas, tensor, None if len(layout.holders) == 1 else _factors(layout, tensor, rows))


def counted_in_graph(layout: ParameterLayout, tensor: torch.Tensor, mesh: Mesh) -> Iterator[torch.Tensor]:
    """What this rank counts in a norm, rows that another one counts being zeros."""
    if layout.holders == {1}:
        yield tensor
        return
    counts = [mesh.holders(piece.replicas).rank == 0 for piece in layout.pieces]
    yield tensor * _factors(layout, tensor, counts)


def summed(flat: torch.Tensor, replicas: int, mesh: Mesh) -> torch.Tensor:
    """The sum of [n] over the ranks that hold the same as this one; `flat` may be overwritten.

    In a graph it goes over the whole tensor-parallel group, each set of holders in a row of its own, where
    holders would be a group that a Trainium1 has no ring for (`grid.RINGS`): `tensor / replicas` times the
    bytes, once an update, instead of a program that may not load.
    """
    sets = sets_of_holders(mesh.tensor.size, replicas) if in_graph(flat.device) else 1
    if sets == 1:
        return mesh.holders(replicas).all_reduce(flat)
    own = of_rank(mesh.tensor.rank // replicas, flat.device)
    rows = torch.arange(sets, device=flat.device)
    wide = torch.where((rows == own)[:, None], flat[None], 0)
    return mesh.tensor.all_reduce(wide).index_select(0, own).squeeze(0)


def pieces_in(layout: ParameterLayout, tensor: torch.Tensor) -> Iterator[tuple[Piece, torch.Tensor]]:
    """Views of a tensor's pieces, padding included."""
    sizes = [piece.local_shape[layout.concat_dim] for piece in layout.pieces]
    parts = torch.split(tensor.view(layout.shape), sizes, layout.concat_dim)
    return zip(layout.pieces, parts, strict=True)


def _factors(layout: ParameterLayout, tensor: torch.Tensor, counts: Sequence[bool]) -> torch.Tensor:
    """1 or 0 for the rows of each piece, to be multiplied with the tensor."""
    sizes = [piece.local_shape[layout.concat_dim] for piece in layout.pieces]
    rows = torch.tensor(counts, dtype=torch.float32).repeat_interleave(torch.tensor(sizes))
    shape = [1] * tensor.dim()
    shape[layout.concat_dim] = len(rows)
    return rows.view(shape).to(tensor.device)
