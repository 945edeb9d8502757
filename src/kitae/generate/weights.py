"""Weights of a checkpoint of any format as the matrices of a model that only computes forward.

They come through the pipe a block of rows at a time, so that beside what is kept there is never more than a
block: an int8 model is quantised while it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch

from kitae.backend.group import Group
from kitae.checkpoint.pipe import TensorInfo, TensorSource, blocks
from kitae.generate.matrices import ByColumns, ByRows, Int8, Matrix
from kitae.parallel.layout import Box, ParameterLayout, full_box

Quantize = Literal["none", "int8"]
LARGEST = 127
CPU = torch.device("cpu")
BLOCK_BYTES = 1 << 20
"""Read at once. A block is held a few times in fp32 while it is rounded."""


@dataclass(frozen=True)
class Weights:
    """All that a model computes with, under the names of its layout."""

    matrices: Mapping[str, Matrix]
    vectors: Mapping[str, torch.Tensor]
    """Norms and biases."""

    @property
    def nbytes(self) -> int:
        """Bytes of all of it."""
        matrices = sum(one.nbytes for one in self.matrices.values())
        return matrices + sum(one.nbytes for one in self.vectors.values())


@dataclass(frozen=True)
class Keeping:
    """How weights are kept, and where."""

    dtype: torch.dtype = torch.float32
    """Of what is not quantised."""
    device: torch.device = CPU
    quantize: Quantize = "none"


def read_weights(
    source: TensorSource, layouts: list[ParameterLayout], keeping: Keeping, group: Group
) -> Weights:
    """Read what one rank of `group` holds; its layouts must fit the source's tensors."""
    matrices: dict[str, Matrix] = {}
    vectors: dict[str, torch.Tensor] = {}
    make = _MATRICES[keeping.quantize]
    for layout in layouts:
        parts = _parts(layout, source)
        if len(layout.shape) == 2:
            matrices[layout.name] = make(layout, parts, keeping, group if _is_cut_inside(layout) else None)
        else:
            vectors[layout.name] = _filled(layout, parts, keeping.dtype).to(keeping.device)
    return Weights(matrices, vectors)


def live_weights(parameters: Mapping[str, torch.Tensor]) -> Weights:
    """The weights of a model that trains, in its own memory."""
    tensors = {name: parameter.detach() for name, parameter in parameters.items()}
    return Weights(
        {name: ByRows(tensor) for name, tensor in tensors.items() if tensor.dim() == 2},
        {name: tensor for name, tensor in tensors.items() if tensor.dim() == 1},
    )


Part = tuple[slice, torch.Tensor]
"""Rows of a local parameter, and their values in the source's dtype."""


def _parts(layout: ParameterLayout, source: TensorSource) -> Iterator[Part]:
    """A local parameter in blocks of rows; padding is not among them."""
    assert layout.concat_dim == 0, layout.name
    start = 0
    for piece in layout.pieces:
        box = full_box(piece)
        info = TensorInfo(box.shape, source.tensors()[piece.tensor].dtype)
        for block in blocks(info, BLOCK_BYTES) if prod(box.shape) else ():
            first = start + block.start[0]
            place = tuple(begin + offset for begin, offset in zip(box.start, block.start, strict=True))
            yield slice(first, first + block.shape[0]), source.read(piece.tensor, Box(place, block.shape))
        start += piece.local_shape[0]


def _filled(layout: ParameterLayout, parts: Iterator[Part], dtype: torch.dtype) -> torch.Tensor:
    values = torch.zeros(layout.shape, dtype=dtype)
    for rows, part in parts:
        values[rows] = part.to(dtype)
        del part  # it may keep the pages of a file mapped, while the next is read from new ones
    return values


def _plain(layout: ParameterLayout, parts: Iterator[Part], keeping: Keeping, group: Group | None) -> Matrix:
    """As it is; on a CPU in fp32 by columns, which is faster there."""
    if keeping.device.type != "cpu" or keeping.dtype != torch.float32:
        return ByRows(_filled(layout, parts, keeping.dtype).to(keeping.device))
    columns = torch.zeros(layout.shape[::-1], dtype=keeping.dtype)
    for rows, part in parts:
        columns[:, rows] = part.to(keeping.dtype).t()
        del part
    return ByColumns(columns)


def _int8(layout: ParameterLayout, parts: Iterator[Part], keeping: Keeping, group: Group | None) -> Matrix:
    values = torch.zeros(layout.shape, dtype=torch.int8)
    scales = torch.ones(layout.shape[0], dtype=torch.bfloat16)
    for rows, part in parts:
        values[rows], scales[rows] = quantised(part.to(torch.float32, copy=True), group)
        del part
    return Int8(values.to(keeping.device), scales.to(keeping.device))


def quantised(weight: torch.Tensor, group: Group | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Round [N, K] fp32, which is overwritten, to int8 with a bf16 scale [N] a row: symmetric, none clipped.

    `group` are the ranks that hold other columns of the same rows; all get the scales of one process.
    """
    largest = torch.linalg.vector_norm(weight, torch.inf, dim=1)
    if group is not None:
        group.all_reduce(largest, "max")
    scales = _rounded_up(largest / LARGEST)
    return weight.div_(scales.float()[:, None]).round_().to(torch.int8), scales


def _rounded_up(scales: torch.Tensor) -> torch.Tensor:
    """The next numbers of bf16, not below; one for a row of zeros."""
    near = scales.to(torch.bfloat16)
    above = torch.where(near.float() < scales, (near.view(torch.int16) + 1).view(torch.bfloat16), near)
    return torch.where(above > 0, above, torch.ones_like(above))


def _is_cut_inside(layout: ParameterLayout) -> bool:
    """Whether other ranks hold other columns of its rows."""
    return any(full_box(piece).shape[-1] < piece.full_shape[-1] for piece in layout.pieces)


_MATRICES: dict[Quantize, Callable[[ParameterLayout, Iterator[Part], Keeping, Group | None], Matrix]] = {
    "none": _plain,
    "int8": _int8,
}
