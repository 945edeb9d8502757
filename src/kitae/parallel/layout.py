"""Which part of which full tensor each rank holds: the one table that everything about ranks follows from.

A full tensor is the one of the Hugging Face checkpoint. It is looked at through a *view* (a reshape, such as
[heads, head_dim, hidden]); a rank holds a *box* of that view. A local parameter is a list of such pieces,
each reshaped to its local shape and concatenated along `concat_dim`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

Initial = Literal["normal", "zeros", "ones"]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Box:
    """A rectangular part of a tensor: `start[i] <= index[i] < start[i] + shape[i]`."""

    start: Shape
    shape: Shape

    @classmethod
    def whole(cls, shape: Shape) -> Box:
        """The box that is all of a tensor of `shape`."""
        return cls((0,) * len(shape), tuple(shape))

    def slices(self) -> tuple[slice, ...]:
        """Indices that cut the box out of a tensor."""
        return tuple(slice(start, start + size) for start, size in zip(self.start, self.shape, strict=True))


@dataclass(frozen=True)
class Piece:
    """One full tensor's contribution to a local parameter."""

    tensor: str
    """Name of the full tensor."""
    full_shape: Shape
    """Its shape in the checkpoint."""
    view: Shape
    """The shape it is looked at through; as many elements as `full_shape`."""
    box: Box
    """What this rank holds of the view; may be empty when the rank holds only padding."""
    local_shape: Shape
    """Shape of the piece inside the local parameter. Rows beyond the box's are padding, filled with zeros."""
    replicas: int = 1
    """How many ranks hold the same box; a norm over all ranks divides by it."""


@dataclass(frozen=True)
class ParameterLayout:
    """A local parameter of one rank: its pieces, how it starts, and whether it is decayed."""

    name: str
    pieces: tuple[Piece, ...]
    concat_dim: int = 0
    initial: Initial = "normal"
    decay: bool = True
    token_wise: bool = False
    """Whether its gradient is made where hidden states are token-wise (norms and biases of a layer's sums):
    whole on every rank or, under sequence parallelism, a part from each rank's tokens. A replicated piece of
    any other parameter always gets a part of its gradient on each rank."""
    held_by: frozenset[int] | None = None
    """Of some rows of a parameter: how many ranks hold a piece of it, whether or not it has rows here."""

    @property
    def holders(self) -> frozenset[int]:
        """How many ranks hold a piece, of any piece of the whole local parameter."""
        return self.held_by or frozenset(piece.replicas for piece in self.pieces)

    @property
    def shape(self) -> Shape:
        """Shape of the local parameter."""
        shape = list(self.pieces[0].local_shape)
        shape[self.concat_dim] = sum(piece.local_shape[self.concat_dim] for piece in self.pieces)
        return tuple(shape)


LayoutTable = Callable[[int, int], list[ParameterLayout]]
"""`table(tp_size, tp_rank)`: the local parameters of one rank."""


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
