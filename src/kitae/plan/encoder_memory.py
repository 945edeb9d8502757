"""Closed form of what an encoder's forward and backward pass hold beside the state, in bytes.

Letters as in `work`. Written after `model/encoder_blocks.py` and `model/encoder_kernels.py`: a norm keeps its
input, the product behind it the norm's output; dropout a byte for each number, or nothing when recomputed.
"""

from __future__ import annotations

from kitae.model.encoder_config import EncoderConfig
from kitae.plan.work import FP32, Work

KEYS = 8
"""Bytes of the two keys that a line of a dropout mask is drawn from."""
SCORES = 1 << 20
"""Attention scores that are in memory together on a CPU; those of one row at the least."""


def kept_by_layer(work: Work, recompute: str) -> int:
    """By one layer until its backward pass, with this kind of recomputation."""
    hidden = work.tokenwise * work.config.hidden_size
    if recompute == "full":
        return hidden * work.hidden_bytes
    norms = 2 * (hidden * (work.hidden_bytes + work.product_bytes) + 2 * work.tokenwise * FP32)
    activated = 2 if recompute == "none" else 1
    inner = activated * work.tokens * work.inner * work.product_bytes
    dropped = _dropout(work, 2 * hidden, 2 * work.tokenwise, recompute) if work.hidden_dropout else 0
    return norms + _attention(work, recompute) + inner + dropped


def _attention(work: Work, recompute: str) -> int:
    width = work.heads * _config(work).head_dim
    kept = 4 * work.tokens * width * work.product_bytes
    if work.precision == "autocast":
        kept += work.config.hidden_size * width * work.product_bytes
    if work.attention_dropout:
        lines = work.tokens * work.heads
        return kept + _dropout(work, lines * work.length, lines, recompute)
    return kept if work.blocked else kept + work.tokens * work.heads * FP32


def _dropout(work: Work, numbers: int, lines: int, recompute: str) -> int:
    return lines * KEYS + (numbers if recompute == "none" else 0)


def shared(work: Work) -> int:
    """The embeddings' norm and dropout."""
    hidden = work.tokenwise * work.config.hidden_size
    return hidden * work.hidden_bytes + (
        _dropout(work, hidden, work.tokenwise, work.recompute) if work.hidden_dropout else 0
    )


def ends(work: Work) -> int:
    """Hidden states of all tokens, and what the heads keep of the positions that they look at."""
    config = _config(work)
    looked_at = 4 * work.targets if config.predicts_tokens else 0
    return (work.tokens + looked_at) * config.hidden_size * work.hidden_bytes


def states(work: Work) -> int:
    """One hidden state of a micro-batch, which is also the gradient that goes back."""
    return work.tokenwise * work.config.hidden_size * work.hidden_bytes


def backward_of_layer(work: Work) -> int:
    """What the backward pass of one layer holds at its fullest, beside what was kept."""
    hidden = work.config.hidden_size
    mlp = 2 * work.tokens * work.inner * work.product_bytes + hidden * work.inner * work.product_bytes
    attention = 3 * work.tokens * work.heads * _config(work).head_dim * work.product_bytes + scores(work)
    return max(mlp, attention) + 2 * states(work)


def scores(work: Work) -> int:
    """Attention scores and their gradients, where they are written out."""
    if not (work.blocked or work.attention_dropout):
        return 0
    row = work.heads * work.length**2
    rows = min(work.rows, max(1, SCORES // row)) if work.backend == "cpu" else work.rows
    return 4 * rows * row * work.product_bytes


def _config(work: Work) -> EncoderConfig:
    assert isinstance(work.config, EncoderConfig), "only encoders come here"
    return work.config
