"""Boxes of full tensors: where two meet, and whether they cover a tensor, every element exactly once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from math import prod

from kitae.errors import WeightsError
from kitae.parallel.layout import Box, Shape


def intersect(a: Box, b: Box) -> Box | None:
    """The part that two boxes of one tensor share; None when there is none."""
    start = tuple(map(max, a.start, b.start))
    stop = tuple(min(s + n, t + m) for s, n, t, m in zip(a.start, a.shape, b.start, b.shape, strict=True))
    shape = tuple(end - begin for begin, end in zip(start, stop, strict=True))
    return Box(start, shape) if all(size > 0 for size in shape) else None


def within(part: Box, whole: Box) -> tuple[slice, ...]:
    """Indices of `part` in a tensor that holds only `whole`."""
    start = tuple(p - w for p, w in zip(part.start, whole.start, strict=True))
    return Box(start, part.shape).slices()


class Coverage:
    """What has been written of tensors of given shapes."""

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self._shapes = dict(shapes)
        self._written = {name: _Boxes() for name in shapes}

    def add(self, name: str, box: Box, given: Shape) -> None:
        """Note a box filled with values of shape `given`; WeightsError if it misfits or is not the first."""
        if name not in self._shapes:
            raise WeightsError(
                f"tensor {name} has no place here; it is not one of the {len(self._shapes)} expected"
            )
        shape = self._shapes[name]
        if not fits(box, shape):
            raise WeightsError(
                f"tensor {name}: a part at {box.start} of shape {box.shape} does not fit the shape {shape}"
            )
        if given != box.shape:
            raise WeightsError(f"tensor {name}: values of shape {given} where shape {box.shape} is due")
        if self._written[name].meets(box):
            raise WeightsError(
                f"tensor {name} {shape}: the part at {box.start} of shape {box.shape} was written twice"
            )
        self._written[name].add(box)

    def check(self) -> None:
        """Raise WeightsError naming the tensors of which something is missing."""
        missing = [
            f"{name} {shape}: {self._written[name].count} of {prod(shape)} values"
            for name, shape in self._shapes.items()
            if self._written[name].count < prod(shape)
        ]
        if missing:
            raise WeightsError(f"{len(missing)} tensors were not written in full: {listed(missing)}")


class _Boxes:
    """Boxes of one tensor by their first row: with hundreds of ranks, few of them are near a new one."""

    def __init__(self) -> None:
        self.count = 0
        """Elements in all boxes."""
        self._starts: list[int] = []
        self._at: dict[int, list[Box]] = {}
        self._tallest = 0

    def meets(self, box: Box) -> bool:
        """Whether the box shares an element with one that is here."""
        start, size = _rows(box)
        near = self._starts[
            bisect_right(self._starts, start - self._tallest) : bisect_left(self._starts, start + size)
        ]
        return any(intersect(box, other) for first in near for other in self._at[first])

    def add(self, box: Box) -> None:
        """Take a box in."""
        start, size = _rows(box)
        if start not in self._at:
            insort(self._starts, start)
        self._at.setdefault(start, []).append(box)
        self._tallest = max(self._tallest, size)
        self.count += prod(box.shape)


def _rows(box: Box) -> tuple[int, int]:
    """First row and number of rows; a scalar is one row."""
    return (box.start[0], box.shape[0]) if box.shape else (0, 1)


def listed(names: list[str], most: int = 5) -> str:
    """The first few of a list as text, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def fits(box: Box, shape: Shape) -> bool:
    """Whether a box lies inside a tensor of a shape."""
    return len(box.shape) == len(shape) and all(
        start >= 0 and start + size <= full
        for start, size, full in zip(box.start, box.shape, shape, strict=True)
    )
