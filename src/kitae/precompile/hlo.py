"""The collectives of a program, read from the text of its HLO.

Operands are counted as they stand there, less what torch-xla adds: a scalar that goes from each collective
to the next, so that all ranks begin them in one order. It is an operand of its own of an all-reduce, and
elsewhere it is added to the tensor.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from math import prod

from kitae.parallel.grid import Partition

KINDS = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "collective-permute": "collective_permute",
    "collective-broadcast": "broadcast",
}
"""Names of kitae by those of XLA."""
_ITEM_BITS = re.compile(r"(?:[fsu]|bf|c)(\d+)")
_COLLECTIVE = re.compile(rf"= [^=]*? ({'|'.join(KINDS)})(?:-start)?\((.*?)\), (.*)$", re.MULTILINE)
_OPERAND = re.compile(r"(\w+)\[([\d,]*)\]\S* %")
_GROUPS = re.compile(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}")


@dataclass(frozen=True, order=True)
class Collective:
    """An operation that all ranks of each group do together."""

    kind: str
    """See `KINDS`."""
    groups: Partition
    bytes_in: int
    """Of what a rank gives."""


def collectives(text: str) -> Counter[Collective]:
    """How often a program holds each collective."""
    return Counter(_read(*match.groups()) for match in _COLLECTIVE.finditer(text))


def _read(name: str, operands: str, attributes: str) -> Collective:
    sizes = [_bytes_of(*operand) for operand in _OPERAND.findall(operands)]
    given = sizes[:-1] if name == "all-reduce" else sizes
    groups = _GROUPS.search(attributes)
    assert groups is not None, f"a {name} without replica groups: {attributes}"
    partition = tuple(
        tuple(int(rank) for rank in group.split(",")) for group in re.findall(r"\{([\d,]+)\}", groups[1])
    )
    return Collective(KINDS[name], partition, sum(given))


def _bytes_of(dtype: str, shape: str) -> int:
    bits = _ITEM_BITS.fullmatch(dtype)
    size = int(bits[1]) // 8 if bits else 1
    return size * prod(int(one) for one in shape.split(",") if one)
