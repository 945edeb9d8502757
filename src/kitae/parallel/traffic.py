"""Closed form of the collectives of one update: their kinds, among whom, with how many bytes, and how often.

T tokens of a micro-batch, H hidden, L layers. Of what ranks tell each other over the control group (signals,
counts, losses: some bytes a micro-batch) nothing is in here, nor of evaluations or LAMB's norms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from kitae.parallel.grid import Partition, Partitions, sets_of_holders
from kitae.parallel.layout import ParameterLayout
from kitae.parallel.packed import packed
from kitae.parallel.rows import rows_each, share_layouts

FP32 = 4
"""Bytes of a gradient sum, and of everything about a loss."""


@dataclass(frozen=True)
class Spread:
    """How a training is spread."""

    tensor_parallel_size: int
    data_parallel_size: int
    data_parallel_rank: int
    sequence_parallel: bool
    zero1: bool
    wire_bytes: int
    """Of an element of a gradient between copies: 4 or 2."""
    bucket_bytes: int = 64 << 20
    """Of gradients, and of weights, that travel together."""
    in_graph: bool = False
    """Whether collectives are operations of a graph, which has to be the same on all ranks."""


@dataclass(frozen=True)
class Work:
    """What one rank computes in an update."""

    hidden_size: int
    num_layers: int
    tokens: Sequence[int]
    """By micro-batch: rows x length."""
    targets: int
    """Tokens with a target, of all micro-batches, which have equally many."""
    hidden_bytes: int
    """Of an element of the hidden states between layers."""
    product_bytes: int
    """Of an element inside layers: as `hidden_bytes`, or 2 under autocast."""
    parameter_bytes: int
    """Of an element of a parameter."""
    recompute_layers: bool
    """Whether the backward pass computes whole layers again."""
    chunk_tokens: int = 512
    """Tokens with a target whose loss is taken together."""


class Travel(NamedTuple):
    """A collective that every rank takes part in, each in its own group."""

    kind: str
    among: str
    """`tensor`, `data` or `world`, or `copies-N` for the N neighbours that hold the same KV heads."""
    bytes_in: int
    """Of the tensor that a rank gives."""

    def partition(self, partitions: Partitions) -> Partition:
        """The groups of all ranks."""
        kind, _, size = self.among.partition("-")
        if kind == "copies":
            return partitions.copies[int(size)]
        return {
            "tensor": partitions.tensor,
            "data": partitions.data,
            "world": partitions.everyone,
        }[kind]


Travels = Counter[Travel]
"""How often each happens."""


def update_traffic(layouts: Sequence[ParameterLayout], spread: Spread, work: Work) -> Counter[str]:
    """Bytes given to collectives by kind, for a rank with these local parameters."""
    total: Counter[str] = Counter()
    for travel, count in update_travels(layouts, spread, work).items():
        total[travel.kind] += count * travel.bytes_in
    return total


def update_travels(layouts: Sequence[ParameterLayout], spread: Spread, work: Work) -> Travels:
    """The collectives of an update, for a rank with these local parameters."""
    return micro_batch_travels(spread, work) + reduction_travels(layouts, spread, work)


def micro_batch_travels(spread: Spread, work: Work) -> Travels:
    """Those of all forward and backward passes."""
    if spread.tensor_parallel_size == 1:
        return Counter()
    return _activations(spread, work) + _losses(work)


def reduction_travels(layouts: Sequence[ParameterLayout], spread: Spread, work: Work) -> Travels:
    """Those of the gradients' sums and norm, and of the new weights."""
    total: Travels = Counter()
    if spread.data_parallel_size > 1:
        total += _gradients(layouts, spread)
        total += _weights(layouts, spread, work)
    if spread.tensor_parallel_size > 1:
        total += _copies(layouts, spread)
    sharded = spread.zero1 and spread.data_parallel_size > 1
    if sharded or spread.tensor_parallel_size > 1:
        total[Travel("all_gather", "world" if sharded else "tensor", FP32)] += 1  # the gradients' norm
    return total


def _activations(spread: Spread, work: Work) -> Travels:
    """Entering and leaving what is cut: at the ends, and twice in a layer, each with its gradient.

    With sequence parallelism whole states are summed and scattered, and parts gathered; the norms' outputs
    are gathered again for the backward pass. A layer that is computed again stops before its last sum, as
    nothing that is kept depends on it; in a graph it is computed to the end.
    """
    again = work.num_layers if work.recompute_layers else 0
    total: Travels = Counter()
    for tokens in work.tokens:
        state = tokens * work.hidden_size
        sums = 4 * work.num_layers + again * (2 if spread.in_graph else 1)
        summed = {work.hidden_bytes: 2}, {work.product_bytes: sums}
        kind = "reduce_scatter" if spread.sequence_parallel else "all_reduce"
        total += _sized(kind, state, *summed)
        if spread.sequence_parallel:
            gathered = {work.hidden_bytes: 2}, {work.product_bytes: 6 * work.num_layers + 2 * again}
            total += _sized("all_gather", state // spread.tensor_parallel_size, *gathered)
    return total


def _sized(kind: str, elements: int, *calls: dict[int, int]) -> Travels:
    """Calls among tensor-parallel ranks: how many, by bytes of an element."""
    total: Travels = Counter()
    for sizes in calls:
        total += Counter({Travel(kind, "tensor", elements * size): count for size, count in sizes.items()})
    return total


def _losses(work: Work) -> Travels:
    """Of a chunk of tokens with a target: largest logits, then sums of exponentials and targets' logits."""
    total: Travels = Counter()
    for _ in work.tokens:
        chunks, left = divmod(work.targets // len(work.tokens), work.chunk_tokens)
        for tokens, count in ((work.chunk_tokens, chunks), (left, int(left > 0))):
            if count:
                total[Travel("all_reduce", "tensor", tokens * FP32)] += count
                total[Travel("all_reduce", "tensor", 2 * tokens * FP32)] += count
    return total


def _copies(layouts: Iterable[ParameterLayout], spread: Spread) -> Travels:
    """Gradients of pieces of which several tensor-parallel ranks have a part; of the own rows."""
    size, rank = spread.data_parallel_size if spread.zero1 else 1, spread.data_parallel_rank
    elements: Counter[int] = Counter()
    for layout in share_layouts(layouts, size, rank):
        if spread.sequence_parallel or not layout.token_wise:
            elements.update(_held(layout, spread.in_graph))
    del elements[1]
    return Counter(_summed(replicas, count, spread) for replicas, count in elements.items())


def _summed(replicas: int, elements: int, spread: Spread) -> Travel:
    """A sum over holders, in a graph over all tensor-parallel ranks where these are no ring."""
    whole = spread.tensor_parallel_size
    sets = sets_of_holders(whole, replicas) if spread.in_graph else 1
    among = "tensor" if sets > 1 or replicas == whole else f"copies-{replicas}"
    return Travel("all_reduce", among, sets * elements * FP32)


def _held(layout: ParameterLayout, in_graph: bool) -> Counter[int]:
    """Elements that travel among so many holders: of the pieces or, in a graph, of the whole parameter."""
    if in_graph:
        return Counter(dict.fromkeys(layout.holders, prod(layout.shape)))
    found: Counter[int] = Counter()
    for piece in layout.pieces:
        found[piece.replicas] += prod(piece.local_shape)
    return found


def _gradients(layouts: Iterable[ParameterLayout], spread: Spread) -> Travels:
    """Rows to their ranks, and in bf16 without ZeRO-1 their sums back; else an all-reduce."""
    total: Travels = Counter()
    by_name = {layout.name: layout for layout in layouts}
    sizes = {name: prod(by_name[name].shape) * spread.wire_bytes for name in reversed(by_name)}
    for names in packed(sizes, spread.bucket_bytes):
        rows = sum(_each(by_name[name], spread) for name in names)
        whole = rows * spread.data_parallel_size * spread.wire_bytes
        if spread.wire_bytes == FP32 and not spread.zero1:
            total[Travel("all_reduce", "data", sum(sizes[name] for name in names))] += 1
        elif spread.wire_bytes == FP32 and spread.in_graph:
            total[Travel("reduce_scatter", "data", whole)] += 1
        else:
            total[Travel("all_to_all", "data", whole)] += 1
            if not spread.zero1:
                total[Travel("all_gather", "data", rows * spread.wire_bytes)] += 1
    return total


def _weights(layouts: Iterable[ParameterLayout], spread: Spread, work: Work) -> Travels:
    """Under ZeRO-1, the rows that the rank updated."""
    if not spread.zero1:
        return Counter()
    by_name = {layout.name: layout for layout in layouts}
    sizes = {name: prod(layout.shape) * work.parameter_bytes for name, layout in by_name.items()}
    return Counter(
        Travel(
            "all_gather", "data", sum(_each(by_name[name], spread) for name in names) * work.parameter_bytes
        )
        for names in packed(sizes, spread.bucket_bytes)
    )


def _each(layout: ParameterLayout, spread: Spread) -> int:
    """Elements that a rank takes in a bucket: of as many rows as the rank with most rows has."""
    rows, *rest = layout.shape
    return rows_each(rows, spread.data_parallel_size) * prod(rest)
