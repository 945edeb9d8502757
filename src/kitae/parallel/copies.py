"""Whether ranks that hold the same values hold the same bits: what a faulty device or link would change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch

from kitae.backend.group import Group
from kitae.errors import TrainingError
from kitae.parallel.gradients import pieces_in
from kitae.parallel.layout import ParameterLayout
from kitae.parallel.mesh import Mesh

_INTEGERS = {2: torch.int16, 4: torch.int32}


@torch.no_grad()
def check_copies(
    tensors: Mapping[str, torch.Tensor], layouts: Iterable[ParameterLayout], mesh: Mesh, sharded: bool
) -> None:
    """Raise `TrainingError`, on all ranks, where something that several hold is not the same on all of them.

    `tensors` by parameter name, each of the shape of its layout; `sharded` when data-parallel ranks have
    different rows. Sums of bit patterns are compared: a tensor is read once, and 8 bytes travel for it.
    """
    different: set[str] = set()
    for group, sums in _sums_by_group(tensors, layouts, mesh, sharded):
        mine = torch.stack([*sums.values()])
        highest, lowest = group.all_reduce(mine.clone(), "max"), -group.all_reduce(-mine, "max")
        differs = (highest != lowest).tolist()
        different |= {name for name, differs in zip(sums, differs, strict=True) if differs}
    everywhere = sorted(set().union(*mesh.control.exchange(different)))
    if everywhere:
        more = f" (and of {len(everywhere) - 1} more)" if len(everywhere) > 1 else ""
        raise TrainingError(
            f"ranks that hold the same part of {everywhere[0]}{more} have different values there: a device "
            "or a link is faulty; this state was not saved: run the same command again, on other devices, to "
            "go on from the last checkpoint"
        )


def _sums_by_group(
    tensors: Mapping[str, torch.Tensor], layouts: Iterable[ParameterLayout], mesh: Mesh, sharded: bool
) -> Iterator[tuple[Group, dict[str, torch.Tensor]]]:
    """For each group of holders, in the same order on all ranks, the sums of what they all hold."""
    of_holders: dict[int, dict[str, torch.Tensor]] = {}
    of_copies: dict[str, torch.Tensor] = {}
    copied = mesh.data.size > 1 and not sharded
    for layout in layouts:
        for piece, values in pieces_in(layout, tensors[layout.name]):
            if not copied and piece.replicas == 1:
                continue  # nobody else has it: reading all weights takes its time
            total = values.contiguous().view(_INTEGERS[values.dtype.itemsize]).sum(dtype=torch.int64)
            of_copies[piece.tensor] = total
            if piece.replicas > 1:
                of_holders.setdefault(piece.replicas, {})[piece.tensor] = total
    for replicas, sums in sorted(of_holders.items()):
        yield mesh.holders(replicas), sums
    if copied:
        yield mesh.data, of_copies
