"""Full tensors out of the parts that ranks left on the disk, as their layouts say where these belong.

A part that several ranks hold is read from the first of them; `check_replicas` compares them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Protocol

import torch

from kitae.checkpoint.bits import same_bits
from kitae.checkpoint.coverage import intersect, listed, within
from kitae.checkpoint.pipe import TensorInfo
from kitae.checkpoint.torch_archive import blocks
from kitae.errors import WeightsError
from kitae.parallel.assembly import full_box
from kitae.parallel.layout import Box, ParameterLayout, Shape

_COMPARED_BYTES = 4 << 20


class LocalTensor(Protocol):
    """What one rank left of a parameter."""

    @property
    def info(self) -> TensorInfo:
        """Shape and dtype."""
        ...

    def read_into(self, box: Box, target: torch.Tensor) -> None:
        """Fill a tensor of the box's shape with a box of it."""
        ...


@dataclass(frozen=True)
class Holding:
    """All that one rank left, by the names of its layouts."""

    rank: str
    """The rank in words."""
    tensors: Mapping[str, LocalTensor]
    layouts: Sequence[ParameterLayout]


@dataclass(frozen=True)
class _Part:
    """A box of a full tensor, and the same values' place in what a rank holds."""

    rank: str
    full: Box
    local: Box
    tensor: LocalTensor

    def read_into(self, box: Box, target: torch.Tensor) -> None:
        """Fill a tensor with a box of the full tensor that lies in this part."""
        starts = zip(box.start, self.full.start, self.local.start, strict=True)
        start = tuple(wanted - full + here for wanted, full, here in starts)
        self.tensor.read_into(Box(start, box.shape), target)

    def read(self, box: Box) -> torch.Tensor:
        """The same in memory of its own."""
        result = torch.empty(box.shape, dtype=self.tensor.info.dtype)
        self.read_into(box, result)
        return result


class GatheredSource:
    """The tensors of which ranks hold parts, in the order of `names`; each must be covered by the layouts."""

    def __init__(self, holdings: Iterable[Holding], names: Iterable[str]) -> None:
        self._parts: dict[str, dict[Box, list[_Part]]] = {}
        shapes: dict[str, Shape] = {}
        for holding in holdings:
            for name, shape, part in _parts(holding):
                shapes[name] = shape
                self._parts.setdefault(name, {}).setdefault(part.full, []).append(part)
        held = [name for name in names if name in self._parts]
        assert len(held) == len(self._parts), "a tensor without a place in the order"
        self._infos = {name: TensorInfo(shapes[name], self._dtype(name)) for name in held}
        for name, shape in shapes.items():
            assert sum(prod(box.shape) for box in self._parts[name]) == prod(shape), f"{name} has gaps"

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Shape and dtype of every full tensor."""
        return self._infos

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        """The box of a tensor, in memory of its own; hardly anything is held beside it."""
        info = self._infos[name]
        wanted = box or Box.whole(info.shape)
        result = torch.empty(wanted.shape, dtype=info.dtype)
        for held, (part, *_) in self._parts[name].items():
            shared = intersect(held, wanted)
            if shared is not None:
                part.read_into(shared, result[within(shared, wanted)])
        return result

    def check_replicas(self) -> None:
        """Raise WeightsError with tensor and ranks where ranks hold the same part with other bits."""
        for name, boxes in self._parts.items():
            for first, *others in boxes.values():
                for other in others:
                    _require_same(name, first, other)

    def _dtype(self, name: str) -> torch.dtype:
        ranks: dict[torch.dtype, list[str]] = {}
        for parts in self._parts[name].values():
            for part in parts:
                ranks.setdefault(part.tensor.info.dtype, []).append(f"({part.rank})")
        if len(ranks) > 1:
            found = "; ".join(f"{dtype} on {listed(names, 2)}" for dtype, names in ranks.items())
            raise WeightsError(
                f"tensor {name} has parts of different dtypes: {found}; do not mix checkpoints"
            )
        return next(iter(ranks))


def _parts(holding: Holding) -> Iterator[tuple[str, Shape, _Part]]:
    for layout in holding.layouts:
        sizes = [piece.local_shape[layout.concat_dim] for piece in layout.pieces]
        for piece, stop in zip(layout.pieces, accumulate(sizes), strict=True):
            box = full_box(piece)
            assert box.shape == piece.local_shape, f"{layout.name} is padded or reshaped"
            start = [0] * len(box.shape)
            start[layout.concat_dim] = stop - box.shape[layout.concat_dim]
            local = Box(tuple(start), box.shape)
            yield (
                piece.tensor,
                piece.full_shape,
                _Part(holding.rank, box, local, holding.tensors[layout.name]),
            )


def _require_same(name: str, first: _Part, other: _Part) -> None:
    rows, rest = first.full.shape[0], first.full.shape[1:]
    for start, count in blocks(rows, prod(rest) * first.tensor.info.dtype.itemsize, _COMPARED_BYTES):
        box = Box((first.full.start[0] + start, *first.full.start[1:]), (count, *rest))
        ours, theirs = first.read(box), other.read(box)
        if same_bits(ours, theirs):
            continue
        same = (ours.view(torch.uint8) == theirs.view(torch.uint8)).reshape(*ours.shape, -1).all(-1)
        if not same.all():
            at = tuple((~same).nonzero()[0].tolist())
            where = [start + index for start, index in zip(box.start, at, strict=True)]
            raise WeightsError(
                f"tensor {name}: the ranks ({first.rank}) and ({other.rank}) hold the same part of it with "
                f"different values, the first at {where}: {ours[at].item():.7g} and {theirs[at].item():.7g}; "
                "their copies must be equal, and kitae does not average them: take another checkpoint"
            )
