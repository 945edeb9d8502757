"""The collectives of an update that layout, mesh and recipe predict, as a program on XLA holds them.

Nothing is listed: which there are follows from the parameters' layouts (`parallel/traffic.py`), the groups
from the grid of ranks. There, every token of a row takes part in the loss: no shape may follow the text.
"""

from __future__ import annotations

from collections import Counter

from kitae.parallel.grid import partitions
from kitae.parallel.layout import ParameterLayout
from kitae.parallel.traffic import (
    FP32,
    Spread,
    Travel,
    Travels,
    micro_batch_travels,
    reduction_travels,
)
from kitae.parallel.traffic import Work as Travelling
from kitae.plan.work import Work
from kitae.precompile.hlo import Collective


def expected_update(work: Work, layouts: list[ParameterLayout], rank: int) -> Counter[Collective]:
    """Of all programs of an update together, each as often as it is started."""
    spread = _spread(work, rank)
    travels = micro_batch_travels(spread, _travelling(work, work.micro_batches))
    return _as_collectives(travels + _reductions(work, layouts, spread), work)


def expected_micro_batch(work: Work) -> Counter[Collective]:
    """Of one forward and backward pass."""
    return _as_collectives(micro_batch_travels(_spread(work, 0), _travelling(work, 1)), work)


def _reductions(work: Work, layouts: list[ParameterLayout], spread: Spread) -> Travels:
    found = reduction_travels(layouts, spread, _travelling(work, 1))
    return found + (_ratios(work, layouts, spread) if work.optimizer == "lamb" else Counter())


def _ratios(work: Work, layouts: list[ParameterLayout], spread: Spread) -> Travels:
    """LAMB's: of every decayed full tensor the norms of weights and update."""
    sharded = spread.zero1 and spread.data_parallel_size > 1
    if work.tensor_parallel == 1 and not sharded:
        return Counter()
    tensors = {piece.tensor for layout in layouts if layout.decay for piece in layout.pieces}
    among = "world" if sharded else "tensor"
    return Counter({Travel("all_reduce", among, 2 * len(tensors) * FP32): 1})


def _spread(work: Work, rank: int) -> Spread:
    return Spread(
        tensor_parallel_size=work.tensor_parallel,
        data_parallel_size=work.data_parallel,
        data_parallel_rank=rank // work.tensor_parallel,
        sequence_parallel=work.sequence_parallel,
        zero1=work.zero1,
        wire_bytes=work.wire_bytes,
        bucket_bytes=work.bucket_bytes,
        in_graph=True,
    )


def _travelling(work: Work, micro_batches: int) -> Travelling:
    predicted = 0 if work.objective == "classification" else work.targets
    return Travelling(
        hidden_size=work.config.hidden_size,
        num_layers=work.config.num_layers,
        tokens=[work.tokens] * micro_batches,
        targets=predicted * micro_batches,
        hidden_bytes=work.hidden_bytes,
        product_bytes=work.product_bytes,
        parameter_bytes=work.hidden_bytes,
        recompute_layers=work.recompute == "full",
        chunk_tokens=work.chunk_tokens,
    )


def _as_collectives(travels: Travels, work: Work) -> Counter[Collective]:
    split = partitions(work.tensor_parallel * work.data_parallel, work.tensor_parallel)
    found: Counter[Collective] = Counter()
    for travel, count in travels.items():
        found[Collective(travel.kind, travel.partition(split), travel.bytes_in)] += count
    return found
