"""Between full tensors and local parameters, both ways: a bijection up to replicas and padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import torch

from kitae.parallel.layout import Box, ParameterLayout, Piece

Read = Callable[[str, Box], torch.Tensor]
"""`read(name, box)`: a box of a full tensor, in the full tensor's own coordinates."""


def assemble(layout: ParameterLayout, read: Read, dtype: torch.dtype) -> torch.Tensor:
    """Gather a local parameter of `layout.shape` and `dtype` from boxes of full tensors; padding is zero."""
    parts = [_local(piece, read, dtype) for piece in layout.pieces]
    return parts[0] if len(parts) == 1 else torch.cat(parts, layout.concat_dim)


def pieces_of(layout: ParameterLayout, tensor: torch.Tensor) -> Iterator[tuple[str, Box, torch.Tensor]]:
    """Give each piece of a local parameter: tensor name, box and values in the full tensor's coordinates."""
    assert tuple(tensor.shape) == layout.shape, f"{layout.name}: {tuple(tensor.shape)} is not {layout.shape}"
    sizes = [piece.local_shape[layout.concat_dim] for piece in layout.pieces]
    for piece, part in zip(layout.pieces, tensor.split_with_sizes(sizes, layout.concat_dim), strict=True):
        box = full_box(piece)
        if prod(box.shape):
            yield piece.tensor, box, part[_without_padding(piece)].reshape(box.shape)


def full_box(piece: Piece) -> Box:
    """The piece's box in the coordinates of the full tensor, which the view only splits dimensions of."""
    start: list[int] = []
    shape: list[int] = []
    dims = iter(zip(piece.view, piece.box.start, piece.box.shape, strict=True))
    for size in piece.full_shape:
        first, held = _merged(size, dims)
        start.append(first)
        shape.append(held)
    return Box(tuple(start), tuple(shape))


def _merged(size: int, dims: Iterator[tuple[int, int, int]]) -> tuple[int, int]:
    """Start and length, in one full dimension of `size`, of a box over the view dimensions that split it."""
    covered, start, held = next(dims)
    while covered < size:
        split, first, count = next(dims)
        assert count == split or held == 1, "a box must be one run of each full dimension"
        start, held, covered = start * split + first, held * count, covered * split
    assert covered == size, "a view must only split the dimensions of the full tensor"
    return start, held


def _local(piece: Piece, read: Read, dtype: torch.dtype) -> torch.Tensor:
    box = full_box(piece)
    if not prod(box.shape):
        return torch.zeros(piece.local_shape, dtype=dtype)
    values = read(piece.tensor, box).to(dtype)
    kept = _without_padding(piece)
    if kept == Box.whole(piece.local_shape).slices():
        return values.reshape(piece.local_shape)
    local = torch.zeros(piece.local_shape, dtype=dtype, device=values.device)
    local[kept] = values.reshape(local[kept].shape)
    return local


def _without_padding(piece: Piece) -> tuple[slice, ...]:
    """Indices of the real values in the local piece: padding follows them in dimension 0."""
    rest = prod(piece.local_shape[1:])
    rows = prod(piece.box.shape) // rest if rest else 0
    return (slice(0, rows), *(slice(0, size) for size in piece.local_shape[1:]))
