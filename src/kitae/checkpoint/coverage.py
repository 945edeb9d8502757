"""Boxes of full tensors: where two meet, and whether they cover a tensor, every element exactly once."""

from __future__ import annotations

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
        self._written: dict[str, list[Box]] = {name: [] for name in shapes}

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
        if any(intersect(box, other) for other in self._written[name]):
            raise WeightsError(
                f"tensor {name} {shape}: the part at {box.start} of shape {box.shape} was written twice"
            )
        self._written[name].append(box)

    def check(self) -> None:
        """Raise WeightsError naming the tensors of which something is missing."""
        missing = [self._state(name) for name in self._shapes if self._count(name) < prod(self._shapes[name])]
        if missing:
            raise WeightsError(f"{len(missing)} tensors were not written in full: {listed(missing)}")

    def _count(self, name: str) -> int:
        return sum(prod(box.shape) for box in self._written[name])

    def _state(self, name: str) -> str:
        shape = self._shapes[name]
        return f"{name} {shape}: {self._count(name)} of {prod(shape)} values"


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
