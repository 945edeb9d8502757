"""The groups of one process in the grid of ranks (`parallel/grid.py`), one process a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TypeVar

import torch
import torch.distributed as dist

from kitae.backend.group import ALONE, Group, Meter
from kitae.backend.transport import ProcessGroupTransport, Transport
from kitae.backend.xla_transport import XlaTransport
from kitae.backend.xla_world import check_one_world, look
from kitae.parallel.grid import Partition, partitions

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


GroupMaker = Callable[[Partition], Transport]
"""Makes what the group of a partition that this rank is in exchanges tensors with; all ranks call it."""


def mesh_of(world_size: int, tp_size: int, rank: int, *, control: GroupMaker, device: GroupMaker) -> Mesh:
    """The groups of rank `rank`. All ranks make them in the same order."""
    split, meter = partitions(world_size, tp_size), Meter()

    def build(partition: Partition, make: GroupMaker) -> Group:
        ranks = next(one for one in partition if rank in one)
        # A group of one needs no transport.
        transport = make(partition) if len(ranks) > 1 else None
        return Group(ranks, ranks.index(rank), transport, meter)

    return Mesh(
        control=build(split.everyone, control),
        data=build(split.data, device),
        tensor=build(split.tensor, device),
        world=build(split.everyone, device),
        copies={size: build(partition, device) for size, partition in split.copies.items()},
    )


def join_world(*, tp_size: int, transport: str, through_host: bool, timeout_s: float) -> Mesh:
    """Build the mesh of all processes of this world, whose process group (with gloo on the host) is there.

    `transport` is the device's: the name of a torch.distributed backend, or `xla`. All ranks call this at the
    same point. Raises `TrainingError`, on all ranks, where torch-xla does not see this world.
    """

    def process_group(backend: str) -> GroupMaker:
        return partial(_process_group, backend=backend, through_host=through_host, timeout_s=timeout_s)

    world_size, rank = dist.get_world_size(), dist.get_rank()
    device = XlaTransport if transport == "xla" else process_group(transport)
    mesh = mesh_of(world_size, tp_size, rank, control=process_group("gloo"), device=device)
    if transport == "xla":
        check_one_world(mesh.control.exchange(look()))
    return mesh


def _process_group(
    partition: Partition, backend: str, through_host: bool, timeout_s: float
) -> ProcessGroupTransport:
    """Make a process group of each group, which all ranks do together; the one that this rank is in."""
    handles = {
        ranks: dist.new_group(list(ranks), timeout=timedelta(seconds=timeout_s), backend=backend)
        for ranks in partition
    }
    own = next(ranks for ranks in partition if dist.get_rank() in ranks)
    return ProcessGroupTransport(handles[own], through_host)
