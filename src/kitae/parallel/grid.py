"""The grid of ranks: data parallel x tensor parallel, tensor parallel fastest.

Rank r has tensor-parallel rank `r % tp_size` and data-parallel rank `r // tp_size`, so that the ranks which
talk most are neighbours on one machine.
"""

from __future__ import annotations

from dataclasses import dataclass

Partition = tuple[tuple[int, ...], ...]
"""Groups that together are all ranks of the world, each once."""


@dataclass(frozen=True)
class Partitions:
    """How the ranks of a world fall into groups of each kind; every rank is in one group of each."""

    everyone: Partition
    data: Partition
    tensor: Partition
    copies: dict[int, Partition]
    """By size, see `Mesh.copies` of `parallel/mesh.py`."""


def partitions(world_size: int, tp_size: int) -> Partitions:
    """The groups of a grid of `world_size` ranks of which `tp_size` neighbours share a copy of the model."""
    assert world_size % tp_size == 0, f"{world_size} ranks are no multiple of {tp_size}"
    shares = [size for size in range(2, tp_size) if tp_size % size == 0]
    return Partitions(
        everyone=(tuple(range(world_size)),),
        data=tuple(tuple(range(start, world_size, tp_size)) for start in range(tp_size)),
        tensor=_runs(world_size, tp_size),
        copies={size: _runs(world_size, size) for size in shares},
    )


def _runs(world_size: int, size: int) -> Partition:
    return tuple(tuple(range(start, start + size)) for start in range(0, world_size, size))


RINGS = (2, 8, 32)
"""Numbers of neighbouring cores that the links of a trn1.32xlarge join in a ring: a chip, a row of its torus,
all of it. Four are a column of the torus, and cores 8 apart: the vendor's libraries place groups of four so
there. Nobody here could try others."""


def sets_of_holders(tp_size: int, replicas: int) -> int:
    """How many sets of holders sum up in one collective of a graph; 1 when each does by itself."""
    return 1 if replicas == tp_size or replicas in RINGS else tp_size // replicas
