"""Closed form of the bytes that a rank gives to collectives in one update of a decoder, by kind.

T tokens of a micro-batch, H hidden, L layers. Of what ranks tell each other over the control group (signals,
counts, losses: some bytes a micro-batch) nothing is in here, nor of evaluations or LAMB's norms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from kitae.parallel.layout import ParameterLayout
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


@dataclass(frozen=True)
class Work:
    """What one rank computes in an update."""

    hidden_size: int
    num_layers: int
    tokens: Sequence[int]
    """By micro-batch: rows x length."""
    targets: int
    """Tokens with a target, of all micro-batches."""
    hidden_bytes: int
    """Of an element of the hidden states between layers."""
    product_bytes: int
    """Of an element inside layers: as `hidden_bytes`, or 2 under autocast."""
    parameter_bytes: int
    """Of an element of a parameter."""
    recompute_layers: bool
    """Whether the backward pass computes whole layers again."""


def update_traffic(layouts: Sequence[ParameterLayout], spread: Spread, work: Work) -> Counter[str]:
    """Bytes given to collectives by kind, for a rank with these local parameters."""
    total: Counter[str] = Counter()
    if spread.tensor_parallel_size > 1:
        total += _activations(spread, work)
        total += _losses(work)
        total += _copies(layouts, spread)
    if spread.data_parallel_size > 1:
        total += _gradients(layouts, spread)
        total += _weights(layouts, spread, work)
    if spread.tensor_parallel_size > 1 or _sharded(spread):
        total["all_gather"] += FP32  # the gradients' norm
    return total


def _sharded(spread: Spread) -> bool:
    return spread.zero1 and spread.data_parallel_size > 1


def _activations(spread: Spread, work: Work) -> Counter[str]:
    """Entering and leaving what is cut: at the ends, and twice in a layer, each with its gradient.

    With sequence parallelism whole states are summed and scattered, and parts gathered; the norms' outputs
    are gathered again for the backward pass. A layer that is computed again stops before its last sum, as
    nothing that is kept depends on it.
    """
    ends, layers = work.hidden_bytes, work.num_layers * work.product_bytes
    again = layers if work.recompute_layers else 0
    state = sum(work.tokens) * work.hidden_size
    summed = state * (2 * ends + 4 * layers + again)
    if not spread.sequence_parallel:
        return Counter(all_reduce=summed)
    part = state // spread.tensor_parallel_size
    return Counter(reduce_scatter=summed, all_gather=part * (2 * ends + 6 * layers + 2 * again))


def _losses(work: Work) -> Counter[str]:
    """Of every token with a target: its largest logit, sum of exponentials, and target's logit."""
    return Counter(all_reduce=work.targets * 3 * FP32)


def _copies(layouts: Iterable[ParameterLayout], spread: Spread) -> Counter[str]:
    """Gradients of pieces of which several tensor-parallel ranks have a part; of the own rows."""
    size, rank = spread.data_parallel_size if spread.zero1 else 1, spread.data_parallel_rank
    elements = sum(
        prod(piece.local_shape)
        for layout in share_layouts(layouts, size, rank)
        if spread.sequence_parallel or not layout.token_wise
        for piece in layout.pieces
        if piece.replicas > 1
    )
    return Counter(all_reduce=elements * FP32)


def _gradients(layouts: Iterable[ParameterLayout], spread: Spread) -> Counter[str]:
    """Rows to their ranks, and in bf16 without ZeRO-1 their sums back; else an all-reduce."""
    rows = sum(_each(layout, spread) for layout in layouts)
    exchanged = Counter(all_to_all=spread.data_parallel_size * rows * spread.wire_bytes)
    if spread.zero1:
        return exchanged
    if spread.wire_bytes == FP32:
        return Counter(all_reduce=sum(prod(layout.shape) for layout in layouts) * FP32)
    return exchanged + Counter(all_gather=rows * spread.wire_bytes)


def _weights(layouts: Iterable[ParameterLayout], spread: Spread, work: Work) -> Counter[str]:
    """Under ZeRO-1, the rows that the rank updated."""
    rows = sum(_each(layout, spread) for layout in layouts)
    return Counter(all_gather=rows * work.parameter_bytes) if spread.zero1 else Counter()


def _each(layout: ParameterLayout, spread: Spread) -> int:
    """Elements that a rank takes in a bucket: of as many rows as the rank with most rows has."""
    rows, *rest = layout.shape
    return rows_each(rows, spread.data_parallel_size) * prod(rest)
