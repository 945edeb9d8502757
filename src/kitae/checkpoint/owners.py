"""Which rank writes which box of a save.

Every rank works this out alone, from the layouts of all ranks, and all come to the same result. A box that
several ranks hold (copies of the model, norms, KV heads) is written by one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from kitae.parallel.assembly import full_box
from kitae.parallel.layout import Box, ParameterLayout

Slot = tuple[str, Box]


@dataclass(frozen=True)
class Division:
    """A save, divided among ranks."""

    names: tuple[str, ...]
    """Full tensors, in the order of the model."""
    boxes: tuple[dict[str, list[Box]], ...]
    """By rank, what it writes of each tensor; a tensor of which it writes nothing is left out."""


def divide(world: Sequence[Sequence[ParameterLayout]]) -> Division:
    """Let each box be written once, and all ranks write about the same number of elements.

    `world` has the layouts of every rank, with the same parameters in the same order. Boxes with the fewest
    holders are given out first, larger ones before smaller ones, each to the holder with the least so far.
    """
    held = [list(dict.fromkeys(_slots(layouts))) for layouts in world]
    holders: dict[Slot, list[int]] = {}
    for rank, slots in enumerate(held):
        for slot in slots:
            holders.setdefault(slot, []).append(rank)
    owner: dict[Slot, int] = {}
    load = [0] * len(world)
    for slot in sorted(holders, key=lambda slot: (len(holders[slot]), -prod(slot[1].shape))):
        owner[slot] = min(holders[slot], key=load.__getitem__)
        load[owner[slot]] += prod(slot[1].shape)
    written = ([slot for slot in slots if owner[slot] == rank] for rank, slots in enumerate(held))
    return Division(_names(world), tuple(_by_name(slots) for slots in written))


def _slots(layouts: Sequence[ParameterLayout]) -> list[Slot]:
    boxes = ((piece.tensor, full_box(piece)) for layout in layouts for piece in layout.pieces)
    return [(name, box) for name, box in boxes if prod(box.shape)]


def _by_name(slots: Sequence[Slot]) -> dict[str, list[Box]]:
    boxes: dict[str, list[Box]] = {}
    for name, box in slots:
        boxes.setdefault(name, []).append(box)
    return boxes


def _names(world: Sequence[Sequence[ParameterLayout]]) -> tuple[str, ...]:
    """Parameter by parameter: a rank's share may lack some of a parameter's tensors."""
    pieces = (piece for parameter in zip(*world, strict=True) for one in parameter for piece in one.pieces)
    return tuple(dict.fromkeys(piece.tensor for piece in pieces))
