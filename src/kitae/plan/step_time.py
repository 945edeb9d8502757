"""Seconds of an update: products by FLOPs, weights by memory, collectives by latency and bandwidth.

All is of one process; they are alike. A collective of n processes that moves X bytes of each takes
floor + X (n - 1) / n / bandwidth (Thakur et al., 2005), twice that when it is an all-reduce. Inside a node
the bandwidth is the chip's bus bandwidth; between nodes, the node's network shared by its processes.
Between two updates the device waits for the host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil
from typing import NamedTuple

from kitae.model.config import DecoderConfig
from kitae.model.encoder_config import EncoderConfig
from kitae.model.tables import ModelConfig
from kitae.parallel.traffic import Spread, update_traffic
from kitae.parallel.traffic import Work as Travel
from kitae.plan.efficiency import Efficiency, efficiency_of
from kitae.plan.machine import Machine
from kitae.plan.work import FP32, Work, layouts_of

OVERLAPPED = {"cuda": 0.9, "cpu": 0.0, "xla": 0.0, "neuron": 0.5}
"""Share of the exchange between copies that the last backward pass hides, by backend."""
SCORE_PASSES = {"fused": 0, "kept": 11, "again": 14, "dropped": 20}
"""Reads and writes of an attention probability through memory, by the kind of attention.

In one kernel, none. Else 4 forward (scores, softmax in and out, product) and 7 backward, 3 of the former
again where nothing is kept; dropout has 3 more each way, and some for what it draws.
"""
WRITES_DROPPED = ("xla", "neuron")
"""Backends on which dropout keeps attention from being one kernel."""


@dataclass(frozen=True)
class StepTime:
    """Seconds of one update, by what they go into."""

    products: Mapping[str, float]
    """Matrix products by kind: attention, scores, mlp, head."""
    weights: float
    """Weights and gradient sums through memory."""
    dropout: float
    """Attention's probabilities through memory, where dropout, mostly, has them written out."""
    tensor_parallel: float
    """Collectives of every layer."""
    copies: float
    """Gradients and weights between copies, as far as nothing hides them."""
    optimizer: float
    idle: float
    """Of a pipeline's ends."""
    host: float
    """Of the host between two updates."""
    spread: float
    """The interval is the time divided and multiplied by 1 + this."""

    @cached_property
    def seconds(self) -> float:
        """Of an update, in the middle of the interval."""
        computed = sum(self.products.values()) + self.weights + self.dropout + self.optimizer
        return computed + self.communication + self.idle + self.host

    @property
    def communication(self) -> float:
        """Of collectives."""
        return self.tensor_parallel + self.copies

    @property
    def interval(self) -> tuple[float, float]:
        """Shortest and longest."""
        return self.seconds / (1 + self.spread), self.seconds * (1 + self.spread)


def step_time(work: Work, machine: Machine, efficiency: Efficiency | None = None) -> StepTime:
    """What an update takes; with another efficiency than the stack's."""
    if machine.local is not None and efficiency is None:
        found: StepTime = machine.local.step_time(work, machine)
        return found
    reached = efficiency or efficiency_of(work)
    count, stages = work.micro_batches, work.pipeline
    flops = flops_by_kind(work)
    peak = machine.peak[product_dtype(work)] * reached.products
    products = {kind: count * one / work.tensor_parallel / stages / peak for kind, one in flops.items()}
    through_memory = machine.memory_bandwidth / reached.traffic
    weights = count * _weight_bytes(work) / through_memory
    dropout = count * _score_bytes(work) / through_memory
    tensor = _tensor_parallel(work, machine, reached)
    busy = sum(products.values()) + weights + dropout + tensor
    return StepTime(
        products=products,
        weights=weights,
        dropout=dropout,
        tensor_parallel=tensor,
        copies=_copies(work, machine, reached) * (1 - OVERLAPPED[work.backend]),
        optimizer=_optimizer_bytes(work) / through_memory,
        idle=busy * (stages - 1) / count,
        host=reached.host_s,
        spread=reached.spread,
    )


def collectives(work: Work, machine: Machine) -> tuple[float, float]:
    """Seconds of those of tensor parallelism and of those between copies, none of it hidden."""
    reached = efficiency_of(work)
    return _tensor_parallel(work, machine, reached), _copies(work, machine, reached)


def flops_by_kind(work: Work) -> dict[str, float]:
    """FLOPs of a micro-batch through the whole model, forward and backward, with what is recomputed.

    2 a weight and token forward, 4 backward; scores are counted dense (see `model/flops.py`).
    """
    config, tokens = work.config, work.tokens
    layers = config.num_layers * tokens * (8 if work.recompute == "full" else 6)
    width = config.num_heads * config.head_dim
    if isinstance(config, DecoderConfig):
        keys, matrices = config.num_kv_heads * config.head_dim, 3
        head = 6 * tokens * config.vocab_size * config.hidden_size
    else:
        keys, matrices = width, 2
        head = _encoder_heads(work, config)
    return {
        "attention": layers * config.hidden_size * 2 * (width + keys),
        "scores": layers * 2 * width * work.length,
        "mlp": layers * matrices * config.hidden_size * config.intermediate_size,
        "head": head,
    }


def _encoder_heads(work: Work, config: EncoderConfig) -> int:
    hidden = config.hidden_size
    predicted = work.targets * (hidden**2 + config.vocab_size * hidden) if config.predicts_tokens else 0
    return 6 * (predicted + (work.rows * hidden**2 if config.pooler else 0))


def product_dtype(work: Work) -> str:
    """Trainium's compiler makes fp32 products in bf16 unless it is told otherwise."""
    return "fp32" if work.precision == "fp32" and work.backend not in ("xla", "neuron") else "bf16"


def _local_elements(work: Work) -> float:
    return work.sizes.elements / work.pipeline


def _weight_bytes(work: Work) -> float:
    """Weights are read three times; gradient sums are read and written."""
    return _local_elements(work) * (3 * work.hidden_bytes + 2 * work.sum_bytes)


def _score_bytes(work: Work) -> float:
    """Of the attention probabilities of a micro-batch, each time they go through memory."""
    layers = work.config.num_layers / work.pipeline
    numbers = layers * work.rows * work.heads * work.length**2
    return numbers * work.hidden_bytes * SCORE_PASSES[_attention_kind(work)]


def _attention_kind(work: Work) -> str:
    if work.attention_dropout and work.backend in WRITES_DROPPED:
        return "dropped"
    return work.scores


def _optimizer_bytes(work: Work) -> float:
    """Two moments, master or weight and gradient: read, and all but the gradient written."""
    share = work.data_parallel if work.zero1 else 1
    return _local_elements(work) / share * 7 * work.sum_bytes


def _tensor_parallel(work: Work, machine: Machine, reached: Efficiency) -> float:
    size = work.tensor_parallel
    if size == 1:
        return 0
    moved = _moved(work)
    calls = work.micro_batches * work.config.num_layers * (10 if work.sequence_parallel else 4)
    inside = size <= machine.devices
    bandwidth = (
        machine.bus_bandwidth * reached.link if inside else machine.network_bandwidth / machine.devices
    )
    return (moved / bandwidth + calls * machine.floor_s) / work.pipeline


def _moved(work: Work) -> float:
    """Bytes that leave a process for its tensor-parallel neighbours in an update."""
    size = work.tensor_parallel
    given = _given(_Moving.of(work))
    moved = (2 * given["all_reduce"] + given["reduce_scatter"]) * (size - 1) / size
    return moved + given["all_gather"] * (size - 1)


class _Moving(NamedTuple):
    """What these bytes depend on: the same for many works of a search."""

    config: ModelConfig
    tied: bool
    size: int
    sequence: bool
    tokens: int
    targets: int
    hidden_bytes: int
    product_bytes: int
    again: bool

    @classmethod
    def of(cls, work: Work) -> _Moving:
        count = work.micro_batches
        return cls(
            config=work.config,
            tied=work.tied,
            size=work.tensor_parallel,
            sequence=work.sequence_parallel,
            tokens=work.tokens * count,
            targets=work.targets * count,
            hidden_bytes=work.hidden_bytes,
            product_bytes=work.product_bytes,
            again=work.recompute == "full",
        )


@lru_cache(maxsize=4096)
def _given(moving: _Moving) -> Counter[str]:
    travel = Travel(
        hidden_size=moving.config.hidden_size,
        num_layers=moving.config.num_layers,
        tokens=[moving.tokens],
        targets=moving.targets,
        hidden_bytes=moving.hidden_bytes,
        product_bytes=moving.product_bytes,
        parameter_bytes=moving.hidden_bytes,
        recompute_layers=moving.again,
    )
    spread = Spread(moving.size, 1, 0, moving.sequence, False, FP32)
    return update_traffic(layouts_of(moving.config, moving.tied, moving.size), spread, travel)


def _copies(work: Work, machine: Machine, reached: Efficiency) -> float:
    """Gradients come together, and sums or new weights go back: inside each node, then between nodes."""
    if work.data_parallel == 1:
        return 0
    elements = _local_elements(work)
    back = work.hidden_bytes if work.zero1 else work.wire_bytes
    size = elements * (work.wire_bytes + back)
    near = max(1, min(work.data_parallel, machine.devices // work.tensor_parallel))
    nodes = -(-work.data_parallel // near)
    inside = size * (near - 1) / near / (machine.bus_bandwidth * reached.link)
    each = machine.network_bandwidth / machine.devices
    between = size / near * (nodes - 1) / nodes / each
    calls = 2 * (near > 1) + 4 * (nodes > 1)
    return inside + between + calls * _buckets(work) * machine.floor_s


def _buckets(work: Work) -> int:
    """How many there are; a bucket holds one tensor at the least."""
    size = _local_elements(work) * work.wire_bytes
    return min(work.sizes.tensors, ceil(size / work.bucket_bytes))
