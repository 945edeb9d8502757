"""Between full tensors and local parameters, both ways: a bijection up to replicas and padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import torch

from kitae.parallel.layout import Box, ParameterLayout, Piece, full_box

__all__ = ["Read", "assemble", "full_box", "pieces_of"]

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
