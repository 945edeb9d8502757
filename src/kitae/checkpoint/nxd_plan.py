"""What the files of an NxD folder will hold, worked out before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from kitae.checkpoint.coverage import listed
from kitae.checkpoint.nxd_format import NxdFormat
from kitae.checkpoint.nxd_layout import RankTable
from kitae.checkpoint.pipe import TensorInfo
from kitae.errors import WeightsError
from kitae.parallel.layout import ParameterLayout

RankLayouts = Mapping[tuple[int, int], Sequence[ParameterLayout]]
"""(tp_rank, pp_rank) -> the tensors of that rank's file."""
_OVERHEAD_BYTES = 4096
"""What a tensor costs beside its values: its part of a directory or, in a file of its own, up to a block."""


def all_ranks(table: RankTable, format: NxdFormat) -> RankLayouts:
    """The layouts of every rank."""
    return {
        (tp_rank, pp_rank): table(tp_rank, pp_rank)
        for pp_rank in range(format.pp_size)
        for tp_rank in range(format.tp_size)
    }


def require_same(tensors: Mapping[str, TensorInfo], ranks: RankLayouts) -> None:
    """Raise WeightsError unless the full tensors are exactly those that the ranks hold pieces of."""
    due = {
        piece.tensor: piece.full_shape
        for layouts in ranks.values()
        for layout in layouts
        for piece in layout.pieces
    }
    missing = [name for name in due if name not in tensors]
    if missing:
        raise WeightsError(f"{len(missing)} of {len(due)} tensors are missing: {listed(missing)}")
    extra = [name for name in tensors if name not in due]
    if extra:
        raise WeightsError(f"{len(extra)} tensors have no place in the NxD format: {listed(extra)}")
    for name, shape in due.items():
        if tensors[name].shape != shape:
            raise WeightsError(f"tensor {name} has shape {tensors[name].shape} where {shape} is due")


def rank_tensors(
    layouts: Sequence[ParameterLayout], tensors: Mapping[str, TensorInfo]
) -> dict[str, TensorInfo]:
    """Names, shapes and dtypes in one rank's file, in the order of its keys."""
    return {layout.name: TensorInfo(layout.shape, _dtype(layout, tensors)) for layout in layouts}


def nxd_bytes(tensors: Mapping[str, TensorInfo], table: RankTable, format: NxdFormat) -> int:
    """Bytes on the disk that the folder needs at most; copies that several ranks hold count each."""
    return ranks_bytes(tensors, all_ranks(table, format))


def ranks_bytes(tensors: Mapping[str, TensorInfo], ranks: RankLayouts) -> int:
    """The same of layouts that are there already."""
    sizes = (info.nbytes for layouts in ranks.values() for info in rank_tensors(layouts, tensors).values())
    return sum(size + _OVERHEAD_BYTES for size in sizes)


def _dtype(layout: ParameterLayout, tensors: Mapping[str, TensorInfo]) -> torch.dtype:
    dtypes = {tensors[piece.tensor].dtype for piece in layout.pieces}
    if len(dtypes) > 1:
        parts = ", ".join(f"{piece.tensor} ({tensors[piece.tensor].dtype})" for piece in layout.pieces)
        raise WeightsError(f"NxD holds these in one tensor, so they need one dtype: {parts}; choose one")
    return dtypes.pop()
