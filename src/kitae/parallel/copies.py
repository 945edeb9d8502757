"""Whether ranks that hold the same values hold the same bits: what a faulty device or link would change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch

from kitae.backend.bits import reinterpreted
from kitae.backend.group import Group
from kitae.errors import TrainingError
from kitae.parallel.gradients import pieces_in
from kitae.parallel.layout import ParameterLayout
from kitae.parallel.mesh import Mesh
from kitae.parallel.region import in_graph

_INTEGERS = {2: torch.int16, 4: torch.int32}


@torch.no_grad()
def check_copies(
    tensors: Mapping[str, torch.Tensor],
    layouts: Iterable[ParameterLayout],
    mesh: Mesh,
    sharded: bool,
    ready: Callable[[Sequence[torch.Tensor]], None] = lambda sums: None,
) -> None:
    """Raise `TrainingError`, on all ranks, where something that several hold is not the same on all of them.

    `tensors` by parameter name, each of the shape of its layout; `sharded` when data-parallel ranks have
    different rows. Sums of bit patterns are compared: a tensor is read once, and 8 bytes travel for it.
    `ready` is given the sums, where there are any, before they are looked at: a graph may have to end there.
    """
    found = [
        (group, list(sums), torch.stack([*sums.values()]))
        for group, sums in _sums_by_group(tensors, layouts, mesh, sharded)
    ]
    if found:
        ready([sums for _, _, sums in found])
    on_host = any(in_graph(sums.device) for _, _, sums in found)
    different = (_differing_on_host if on_host else _differing)(found, mesh)
    everywhere = sorted(set().union(*mesh.control.exchange(different)))
    if everywhere:
        more = f" (and of {len(everywhere) - 1} more)" if len(everywhere) > 1 else ""
        raise TrainingError(
            f"ranks that hold the same part of {everywhere[0]}{more} have different values there: a device "
            "or a link is faulty; this state was not saved: run the same command again, on other devices, to "
            "go on from the last checkpoint"
        )


_Found = list[tuple[Group, list[str], torch.Tensor]]
"""For each group of holders: the names of what they hold, and the sums here."""


def _differing(found: _Found, mesh: Mesh) -> set[str]:
    """Names of what others in a group hold other sums of."""
    different: set[str] = set()
    for group, names, mine in found:
        highest, lowest = group.all_reduce(mine.clone(), "max"), -group.all_reduce(-mine, "max")
        different |= {name for name, other in zip(names, (highest != lowest).tolist(), strict=True) if other}
    return different


def _differing_on_host(found: _Found, mesh: Mesh) -> set[str]:
    """The same without collectives of the device, which would be programs of their own."""
    mine = {group.ranks: dict(zip(names, sums.tolist(), strict=True)) for group, names, sums in found}
    different: set[str] = set()
    for theirs in mesh.control.exchange(mine):
        for ranks in mine.keys() & theirs.keys():
            different |= {name for name, value in mine[ranks].items() if theirs[ranks][name] != value}
    return different


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
            total = _bits(values).sum(dtype=torch.int64)
            of_copies[piece.tensor] = total
            if piece.replicas > 1:
                of_holders.setdefault(piece.replicas, {})[piece.tensor] = total
    for replicas, sums in sorted(of_holders.items()):
        yield mesh.holders(replicas), sums
    if copied:
        yield mesh.data, of_copies


def _bits(values: torch.Tensor) -> torch.Tensor:
    """As integers. What graphs can look at so is fp32, which has a number for each of bf16."""
    values = values.float() if in_graph(values.device) else values
    return reinterpreted(values.contiguous(), _INTEGERS[values.dtype.itemsize])
