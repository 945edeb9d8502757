"""What an update on a CPU consists of, counted: products, attention, layers, vocabulary, optimizer.

Seconds are the sum of counts times constants that `kitae calibrate` measures with kitae's own functions, for
a precision and a number of threads. A constant is called after what it is a cost of: a call, a
multiplication, a number that is read or written. Letters as in `work`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod

from kitae.model.config import DecoderConfig
from kitae.model.encoder_config import EncoderConfig
from kitae.plan.work import Work

Counts = dict[str, float]
"""By constant, how often it is paid."""

QUERY_BLOCK = 128
"""Queries that meet their keys at once (`model/attention.py`)."""
LONG = 768
"""Positions from which on torch's fused attention of a CPU takes 256 queries at once, and 64 below."""
AGAIN = {"none": 1.0, "selective": 1.0, "full": 4 / 3}
"""How often a layer is computed, in units of one forward and one backward pass, by recomputation."""
AGAIN_CHEAP = {"none": 0.0, "selective": 1.0, "full": 0.0}
"""Whether norms and activations are computed again by themselves."""


def update_counts(work: Work) -> Counts:
    """Of one update of one process, without what processes tell each other."""
    total: Counts = {"accumulate.weight": (work.micro_batches - 1) * work.config.num_layers * _weights(work)}
    for times, counts in (
        (work.micro_batches, body(work)),
        (work.micro_batches, vocabulary(work)),
        (1, optimizer(work)),
    ):
        _add(total, counts, times)
    return total


def body(work: Work) -> Counts:
    """Of a micro-batch without its loss."""
    total = ends(work)
    times = work.config.num_layers * AGAIN[work.recompute]
    for counts in (layer_products(work), attention(work), layer_states(work)):
        _add(total, counts, times)
    return total


def _add(total: Counts, counts: Mapping[str, float], times: float = 1) -> None:
    for name, count in counts.items():
        total[name] = total.get(name, 0.0) + times * count


def product(tokens: float, inputs: float, outputs: float) -> Counts:
    """A linear layer's three products: result, gradient of the inputs, gradient of the weight."""
    return {
        "product.call": 1,
        "product.flop": 6 * tokens * inputs * outputs,
        "product.weight": inputs * outputs,
        "product.state": tokens * (inputs + outputs),
    }


def layer_products(work: Work) -> Counts:
    """Of one layer and micro-batch."""
    config, tokens = work.config, work.tokens
    hidden, width = config.hidden_size, work.heads * config.head_dim
    if isinstance(config, DecoderConfig):
        fused, inner = width + 2 * work.kv_heads * config.head_dim, 2 * work.inner
    else:
        fused, inner = 3 * width, work.inner
    shapes = ((hidden, fused), (width, hidden), (hidden, inner), (work.inner, hidden))
    total: Counts = {}
    for shape in shapes:
        _add(total, product(tokens, *shape))
    return total


def attention(work: Work) -> Counts:
    """Of one layer and micro-batch, forward and backward."""
    config = work.config
    if isinstance(config, DecoderConfig):
        windows = [_pairs(work, window) for window in config.windows]
        pairs = sum(windows) / len(windows)
        kind = causal_kind(work.length, work.blocked)
        return attention_counts(
            kind, work.rows, work.length, work.heads, work.kv_heads, config.head_dim, pairs
        )
    kind = "dropped" if work.attention_dropout else "whole"
    return attention_counts(
        kind, work.rows, work.length, work.heads, work.heads, config.head_dim, work.length**2
    )


def attention_counts(
    kind: str, rows: int, length: int, heads: int, kv_heads: int, size: int, pairs: float
) -> Counts:
    """Of one call; `pairs` of a query and a key in each row and head."""
    scores = rows * heads * pairs
    return {
        f"{kind}.call": 1,
        f"{kind}.block": ceil(length / QUERY_BLOCK),
        f"{kind}.query": rows * heads * length,
        f"{kind}.flop": 14 * scores * size,
        f"{kind}.score": scores,
        f"{kind}.state": rows * length * (heads + kv_heads) * size,
    }


def causal_kind(length: int, blocked: bool) -> str:
    """Which constants a decoder's attention has: the fused call takes queries by more at once when long."""
    return "long" if not blocked and length >= LONG else "causal"


def _pairs(work: Work, window: int | None) -> float:
    """Pairs of a query and a key that are computed in a row and head: in blocks, or dense below a mask."""
    length = work.length
    if not work.blocked:  # short rows take as long with a mask of documents as without
        dense = work.document_mask and length >= LONG
        return length**2 if dense else length * (length + 1) / 2
    return causal_pairs(length, window)


def causal_pairs(length: int, window: int | None = None) -> int:
    """Pairs that blocks of queries compute."""
    total = 0
    for start in range(0, length, QUERY_BLOCK):
        end = min(start + QUERY_BLOCK, length)
        first = 0 if window is None else max(0, start - window + 1)
        total += (end - start) * (end - first)
    return total


def layer_states(work: Work) -> Counts:
    """What one layer does number by number, and what calling its operations takes."""
    config, kind = work.config, "decoder" if work.is_decoder else "encoder"
    cheap = 1 + AGAIN_CHEAP[work.recompute] / 8
    counts = {
        "layer": 1.0,
        "state": cheap * work.tokenwise * config.hidden_size,
        "inner": cheap * work.tokens * work.inner,
        "head": work.tokens * (work.heads + work.kv_heads) * config.head_dim,
    }
    found = {f"{kind}.{name}": count for name, count in counts.items()}
    if work.hidden_dropout:
        found["dropout.state"] = 2 * work.tokenwise * config.hidden_size
    found["gradient.weight"] = _weights(work)
    return found


def _weights(work: Work) -> float:
    whole = sum(prod(one.shape) for one in work.layouts)
    return max(0.0, whole - work.vocabulary * work.config.hidden_size) / work.config.num_layers


def vocabulary(work: Work) -> Counts:
    """Loss of one micro-batch and its gradients."""
    if work.objective == "classification":
        return {}
    return vocabulary_counts(work.targets, work.vocabulary, work.config.hidden_size, work.chunk_tokens)


def vocabulary_counts(targets: int, rows: int, hidden: int, chunk: int) -> Counts:
    """Of some targets with so many rows of the vocabulary."""
    chunks = max(1, ceil(targets / chunk))
    return {
        "vocabulary.chunk": chunks,
        "vocabulary.flop": 6 * targets * rows * hidden,
        "vocabulary.logit": targets * rows,
        "vocabulary.weight": chunks * rows * hidden,
    }


def ends(work: Work) -> Counts:
    """What a micro-batch has beside its layers and the loss: rows, the embedding, heads of an encoder."""
    config = work.config
    counts: Counts = {
        "micro.call": 1,
        "embedding.weight": work.vocabulary * config.hidden_size,
        "embedding.state": work.tokenwise * config.hidden_size,
    }
    if isinstance(config, EncoderConfig):
        if config.predicts_tokens:
            _add(counts, product(work.targets, config.hidden_size, config.hidden_size))
        if config.pooler:
            _add(counts, product(work.rows, config.hidden_size, config.hidden_size))
    return counts


def optimizer(work: Work) -> Counts:
    """Gradients' norm, clipping and the update of this process's rows."""
    share = work.data_parallel if work.zero1 else 1
    numbers = sum(prod(one.shape) for one in work.layouts) / share
    counts: Counts = {"update.call": 1, "update.tensor": len(work.layouts)}
    counts[f"{work.optimizer}.number"] = numbers
    if work.precision == "bf16-sr":
        counts["rounding.number"] = numbers
    return counts
