"""How each kind of full tensor is cut for tensor parallelism: every function gives the piece of one rank.

`grouped` is kitae's order of attention heads: rank r holds the r-th run of query heads and the key and value
heads that those queries meet. With fewer KV heads than ranks, `tp_size // num_kv_heads` neighbours hold each.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kitae.errors import WeightsError
from kitae.parallel.layout import Box, Piece, Shape


@dataclass(frozen=True)
class Place:
    """One rank of a tensor-parallel group."""

    tp_size: int
    tp_rank: int

    def __post_init__(self) -> None:
        if not 0 <= self.tp_rank < self.tp_size:
            raise WeightsError(
                f"tensor-parallel rank {self.tp_rank} does not exist in a group of {self.tp_size}"
            )


def padded_vocabulary(vocab_size: int, tp_size: int) -> int:
    """Rows of the vocabulary, raised to a multiple of `tp_size`."""
    return -(-vocab_size // tp_size) * tp_size


def replicated(tensor: str, shape: Shape, place: Place) -> Piece:
    """All of the tensor, on every rank."""
    return Piece(tensor, shape, shape, Box.whole(shape), shape, place.tp_size)


def column(tensor: str, shape: Shape, place: Place) -> Piece:
    """An equal share of dimension 0: the outputs of a linear layer."""
    return _share(tensor, shape, 0, place)


def row(tensor: str, shape: Shape, place: Place) -> Piece:
    """An equal share of dimension 1: the inputs of a linear layer."""
    return _share(tensor, shape, 1, place)


def vocabulary(tensor: str, shape: Shape, place: Place) -> Piece:
    """An equal share of the padded vocabulary rows; rows past the real vocabulary are zeros."""
    rows = padded_vocabulary(shape[0], place.tp_size) // place.tp_size
    start = min(place.tp_rank * rows, shape[0])
    held = min(rows, shape[0] - start)
    box = Box((start, *(0,) * (len(shape) - 1)), (held, *shape[1:]))
    return Piece(tensor, shape, shape, box, (rows, *shape[1:]))


def query_heads(tensor: str, shape: Shape, num_heads: int, place: Place) -> Piece:
    """A run of whole heads of dimension 0 (weight [heads * head_dim, hidden] or bias [heads * head_dim])."""
    _require_multiple(tensor, "query heads", num_heads, place.tp_size)
    return _heads(tensor, shape, 0, num_heads, place)


def kv_heads(tensor: str, shape: Shape, num_kv_heads: int, place: Place) -> Piece:
    """The key or value heads that this rank's query heads meet; replicated when fewer than ranks."""
    if num_kv_heads >= place.tp_size:
        _require_multiple(tensor, "KV heads", num_kv_heads, place.tp_size)
        return _heads(tensor, shape, 0, num_kv_heads, place)
    if place.tp_size % num_kv_heads:
        raise WeightsError(
            f"{tensor}: {num_kv_heads} KV heads do not spread evenly over {place.tp_size} ranks; "
            f"choose a size that divides, or is a multiple of, {num_kv_heads}"
        )
    copies = place.tp_size // num_kv_heads
    return _heads(tensor, shape, 0, num_kv_heads, Place(num_kv_heads, place.tp_rank // copies), copies)


def head_columns(tensor: str, shape: Shape, num_heads: int, place: Place) -> Piece:
    """The columns of the output weight [hidden, heads * head_dim] that follow this rank's query heads."""
    _require_multiple(tensor, "query heads", num_heads, place.tp_size)
    return _heads(tensor, shape, 1, num_heads, place)


def _share(tensor: str, shape: Shape, dim: int, place: Place) -> Piece:
    _require_multiple(tensor, f"entries of dimension {dim}", shape[dim], place.tp_size)
    box = _run(shape, dim, place)
    return Piece(tensor, shape, shape, box, box.shape)


def _heads(tensor: str, shape: Shape, dim: int, num_heads: int, place: Place, replicas: int = 1) -> Piece:
    view = (*shape[:dim], num_heads, shape[dim] // num_heads, *shape[dim + 1 :])
    assert prod(view) == prod(shape), f"{tensor}: {shape} does not hold {num_heads} heads"
    box = _run(view, dim, place)
    local = (*shape[:dim], box.shape[dim] * box.shape[dim + 1], *shape[dim + 1 :])
    return Piece(tensor, shape, view, box, local, replicas)


def _run(shape: Shape, dim: int, place: Place) -> Box:
    size = shape[dim] // place.tp_size
    start = [0] * len(shape)
    start[dim] = place.tp_rank * size
    return Box(tuple(start), (*shape[:dim], size, *shape[dim + 1 :]))


def _require_multiple(tensor: str, what: str, count: int, tp_size: int) -> None:
    if count % tp_size:
        raise WeightsError(
            f"{tensor}: {count} {what} do not divide by the tensor-parallel size {tp_size}; "
            f"choose a size that divides {count}"
        )
