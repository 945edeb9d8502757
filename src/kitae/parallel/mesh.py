"""The grid of ranks: data parallel x tensor parallel, tensor parallel fastest, one process a device.

Rank r has tensor-parallel rank `r % tp_size` and data-parallel rank `r // tp_size`, so that the ranks which
talk most are neighbours on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

from kitae.backend.group import ALONE, Group, Meter

Result = TypeVar("Result")


@dataclass(frozen=True)
class Mesh:
    """The groups of this process."""

    control: Group = ALONE
    """The whole world, over host memory: for small facts that all have to agree on."""
    data: Group = ALONE
    """Ranks with the same part of the model and other rows."""
    tensor: Group = ALONE
    """Ranks with the same rows and other parts of the model."""
    world: Group = ALONE
    """The whole world, over the device's transport."""
    copies: dict[int, Group] = field(default_factory=dict)
    """By size: the neighbours within the tensor-parallel group that hold the same KV heads."""

    @property
    def rank(self) -> int:
        """Number of this process in the world."""
        return self.control.rank

    @property
    def leads(self) -> bool:
        """Whether this process speaks for all: it writes what is written once."""
        return self.control.rank == 0

    @property
    def meter(self) -> Meter:
        """What this process has put into collectives."""
        return self.control.meter

    def holders(self, replicas: int) -> Group:
        """The ranks that hold the same piece as this one, of which the layout says `replicas`."""
        if replicas == 1:
            return ALONE
        return self.tensor if replicas == self.tensor.size else self.copies[replicas]


def on_lead(mesh: Mesh, function: Callable[[], Result]) -> Result:
    """Call a function on the rank that leads; all ranks get its result, which must be plain Python."""
    answer: Result = mesh.control.exchange(function() if mesh.leads else None)[0]
    return answer


def sum_over_copies(mesh: Mesh, tensor: torch.Tensor) -> torch.Tensor:
    """Sum a small host tensor, in place, over the copies of the model; ranks of a copy have the same one."""
    if mesh.data.size == 1:
        return tensor
    return mesh.control.all_reduce(tensor if mesh.tensor.rank == 0 else tensor.zero_())


def join_world(*, tp_size: int, transport: str, through_host: bool, timeout_s: float) -> Mesh:
    """Build the mesh of all processes of this world, whose process group (with gloo on the host) is there.

    `transport` is the device's torch.distributed backend. All ranks call this at the same point.
    """
    world_size, rank = dist.get_world_size(), dist.get_rank()
    assert world_size % tp_size == 0, f"{world_size} ranks are no multiple of {tp_size}"
    meter = Meter()

    def build(lists: Sequence[Sequence[int]], backend: str) -> Group:
        return _own_group(lists, rank, backend, through_host, timeout_s, meter)

    everyone = range(world_size)
    rows = [range(start, start + tp_size) for start in range(0, world_size, tp_size)]
    columns = [range(start, world_size, tp_size) for start in range(tp_size)]
    shares = [size for size in range(2, tp_size) if tp_size % size == 0]
    return Mesh(
        control=build([everyone], "gloo"),
        data=build(columns, transport),
        tensor=build(rows, transport),
        world=build([everyone], transport),
        copies={
            size: build([range(s, s + size) for s in range(0, world_size, size)], transport)
            for size in shares
        },
    )


def _own_group(
    lists: Sequence[Sequence[int]],
    rank: int,
    backend: str,
    through_host: bool,
    timeout_s: float,
    meter: Meter,
) -> Group:
    """Make a group of each list, which all ranks do together; the one that this rank is in."""
    own = ALONE
    for ranks in lists:
        members = tuple(ranks)
        # A group of one needs no transport.
        handle = (
            dist.new_group(list(members), timeout=timedelta(seconds=timeout_s), backend=backend)
            if len(members) > 1
            else None
        )
        if rank in members:
            own = Group(members, members.index(rank), handle, through_host, meter)
    return own
