"""Closed form of what a decoder's forward and backward pass hold beside the state, in bytes.

Letters as in `work`. What a layer keeps for its backward pass follows from `model/kernels.py`: a norm and the
product behind it keep the states, their normed copy and a scale; attention its queries, keys, values and
result; the MLP its two inner states and their product. Each is checked against a real run (tests/plan).
"""

from __future__ import annotations

from kitae.model.config import DecoderConfig
from kitae.plan.work import FP32, Work

GATED_BACKWARD = 5
"""Inner states that the gated product's backward pass holds at once: activation, gradients, both joined."""
QUERY_BLOCK = 128
"""Queries that meet their keys at once on a CPU (`model/attention.py`)."""
SCORES_BACKWARD = 3
"""Blocks of scores that the backward pass holds at once."""


def kept_by_layer(work: Work, recompute: str) -> int:
    """By one layer until its backward pass, with this kind of recomputation."""
    states = work.tokenwise * work.config.hidden_size
    if recompute == "full":
        return states * work.hidden_bytes
    norms = 2 * (states * work.hidden_bytes + work.tokenwise * FP32)
    inner = 2 * work.tokens * work.inner * work.product_bytes
    cheap = (2 * states + work.tokens * work.inner) * work.product_bytes
    return norms + _attention(work) + inner + (cheap if recompute == "none" else 0)


def _attention(work: Work) -> int:
    """Queries, keys, values and the result before the output's product."""
    config = _config(work)
    queries, keys = work.heads * config.head_dim, work.kv_heads * config.head_dim
    fused = queries + 2 * keys  # one tensor, alive as long as any of the three is needed
    numbers = queries + keys + (fused if _values_are_a_view(work) else keys) + queries
    if config.qk_norm:
        numbers += 0 if _values_are_a_view(work) else fused
    statistics = work.heads if not work.blocked else 0
    statistics += work.heads + work.kv_heads if config.qk_norm else 0
    cast = config.hidden_size * queries if work.precision == "autocast" else 0
    kept = work.tokens * (numbers * work.product_bytes + statistics * FP32) + cast * work.product_bytes
    return kept + (_scores(work) if work.scores == "kept" else 0)


def _scores(work: Work) -> int:
    """Attention's probabilities, where they are written out."""
    return work.rows * work.heads * work.length**2 * work.product_bytes


def _values_are_a_view(work: Work) -> bool:
    return not work.blocked or work.rows == 1 or work.kv_heads == 1


def shared(work: Work) -> int:
    """What all layers share: rotary tables and, where they are needed, masks."""
    config = _config(work)
    tables = work.tokens * config.head_dim * FP32
    windows = set(config.windows)
    rows = work.rows if work.document_mask else 1
    size = FP32 if work.blocked else 1
    masked = windows if work.blocked or work.document_mask else windows - {None}
    return tables + len(masked) * rows * work.length**2 * size


def ends(work: Work) -> int:
    """Final norm's input, and its output of all tokens."""
    hidden = work.config.hidden_size * work.hidden_bytes
    return work.tokenwise * (hidden + FP32) + work.tokens * hidden


def states(work: Work) -> int:
    """One hidden state of a micro-batch, which is also the gradient that goes back."""
    return work.tokenwise * work.config.hidden_size * work.hidden_bytes


def backward_of_layer(work: Work) -> int:
    """What the backward pass of one layer holds at its fullest, beside what was kept."""
    weight = work.config.hidden_size * work.inner * work.product_bytes
    inner = GATED_BACKWARD * work.tokens * work.inner * work.product_bytes + weight
    # By attention's turn, what the MLP kept is gone.
    freed = 2 * work.tokens * work.inner * work.product_bytes
    return max(inner, _attention_backward(work) - freed) + states(work)


def _attention_backward(work: Work) -> int:
    """Gradients of queries, keys and values; of a block of queries, scores, probabilities and gradients."""
    if not work.blocked:
        return 2 * _scores(work) if work.scores == "kept" else 0
    config = _config(work)
    numbers = (work.heads + 2 * work.kv_heads) * config.head_dim * work.tokens
    block = work.rows * work.heads * min(QUERY_BLOCK, work.length) * work.length
    return (numbers + SCORES_BACKWARD * block) * work.product_bytes


def _config(work: Work) -> DecoderConfig:
    assert isinstance(work.config, DecoderConfig), "only decoders come here"
    return work.config
