"""Which rows of each local parameter a data-parallel rank updates: ZeRO-1's cut (Rajbhandari et al., 2020).

Rank d of D has rows [d * c, (d + 1) * c) of dimension 0, as far as there are rows, with c = ceil(rows / D);
the last ranks may have fewer, or none. A share is rectangular, so it is a layout like any other: what is
saved, loaded and measured of a share follows from its pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod

from kitae.parallel.layout import Box, ParameterLayout, Piece, full_box


def rows_each(rows: int, size: int) -> int:
    """Most rows that one of `size` ranks has."""
    return -(-rows // size)


def row_range(rows: int, size: int, rank: int) -> slice:
    """Part `rank` of `size` of some rows."""
    each = rows_each(rows, size)
    return slice(min(rank * each, rows), min((rank + 1) * each, rows))


def share_layouts(layouts: Iterable[ParameterLayout], size: int, rank: int) -> list[ParameterLayout]:
    """Layouts of what rank `rank` of `size` replicas has of the local parameters."""
    if size == 1:
        return list(layouts)
    return [_share(layout, row_range(layout.shape[0], size, rank)) for layout in layouts]


def _share(layout: ParameterLayout, rows: slice) -> ParameterLayout:
    pieces = tuple(_cut_pieces(layout, rows.start, rows.stop))
    # Without any row, an empty piece keeps the shape.
    return replace(layout, pieces=pieces or (_cut(layout.pieces[0], 0, 0),), held_by=layout.holders)


def _cut_pieces(layout: ParameterLayout, start: int, stop: int) -> Iterator[Piece]:
    """Cut out of every piece what local rows `start` to `stop` hold of it."""
    first = 0
    for piece in layout.pieces:
        if layout.concat_dim:
            yield _cut(piece, start, stop)
            continue
        end = first + piece.local_shape[0]
        if max(start, first) < min(stop, end):
            yield _cut(piece, max(start, first) - first, min(stop, end) - first)
        first = end


def _cut(piece: Piece, start: int, stop: int) -> Piece:
    """Keep rows `start` to `stop` of a local piece, whose padding comes last."""
    box, (_, *rest) = full_box(piece), piece.local_shape
    held = box.shape[0]
    assert prod(box.shape) == held * prod(rest), f"{piece.tensor}: a local row must be a row of the tensor"
    first, end = min(start, held), min(stop, held)
    own = Box((box.start[0] + first, *box.start[1:]), (end - first, *box.shape[1:]))
    # Rows may end within a head, so that the tensor is looked at as it is.
    return replace(piece, view=piece.full_shape, box=own, local_shape=(stop - start, *rest))
