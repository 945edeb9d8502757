"""Pieces of an update, one at a time, on random numbers: a linear layer, attention, the loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.autograd import backward
from torch.nn import functional as F

from kitae.model.attention import attend, attention_mask
from kitae.model.dropout import Draws, keep_of_scores
from kitae.model.encoder_attention import attend_all
from kitae.model.kernels import linear_of, weight_gradients
from kitae.plan.parts import Counts, attention_counts, causal_kind, causal_pairs, product, vocabulary_counts
from kitae.train.loss import linear_cross_entropy

Piece = tuple[Counts, Callable[[], object]]
"""What is computed, in counts, and how."""
CPU = torch.device("cpu")


def linear(tokens: int, inputs: int, outputs: int, dtype: torch.dtype) -> Piece:
    """A linear layer and its gradients."""
    x, weight = torch.randn(tokens, inputs, dtype=dtype), torch.randn(outputs, inputs, dtype=dtype)
    gradient = torch.randn(tokens, outputs, dtype=dtype)

    def run() -> None:
        linear_of(x, weight, None)
        gradient @ weight
        weight_gradients(gradient, x, dtype, None)

    return product(tokens, inputs, outputs), run


def causal(rows: int, length: int, heads: int, kv_heads: int, size: int, dtype: torch.dtype) -> Piece:
    """A decoder's attention, forward and backward."""
    q, k, v = (
        torch.randn(rows, length, count, size, dtype=dtype, requires_grad=True)
        for count in (heads, kv_heads, kv_heads)
    )
    mask = attention_mask(None, length, None, dtype, CPU)
    gradient = torch.randn(rows, length, heads, size, dtype=dtype)
    pairs = causal_pairs(length) if mask is not None else length * (length + 1) / 2
    kind = causal_kind(length, mask is not None)
    counts = attention_counts(kind, rows, length, heads, kv_heads, size, pairs)
    return counts, lambda: backward(attend(q, k, v, mask, None), gradient)


def whole(rows: int, length: int, heads: int, size: int, dropped: bool, dtype: torch.dtype) -> Piece:
    """An encoder's attention, forward and backward."""
    qkv = torch.randn(rows, length, 3, heads, size, dtype=dtype, requires_grad=True)
    seen = torch.ones(rows, length, dtype=torch.bool)
    keys = Draws(0, 1, torch.arange(rows)).keys(1, CPU)[0]
    keep = keep_of_scores(keys, range(heads), length, 0.1) if dropped else None
    gradient = torch.randn(rows, length, heads, size, dtype=dtype)
    kind = "dropped" if dropped else "whole"
    counts = attention_counts(kind, rows, length, heads, heads, size, length**2)
    return counts, lambda: backward(attend_all(qkv, seen, keep, False), gradient)


def loss(targets: int, rows: int, hidden: int, dtype: torch.dtype) -> Piece:
    """Cross-entropy over a vocabulary, with its gradients."""
    states = torch.randn(targets, hidden, dtype=dtype, requires_grad=True)
    weight = torch.randn(rows, hidden, dtype=dtype).mul_(0.02).requires_grad_()
    ids = torch.randint(rows, (targets,))

    def run() -> None:
        states.grad = weight.grad = None
        backward(linear_cross_entropy(states, weight, ids))

    return vocabulary_counts(targets, rows, hidden, 512), run


def embedding(tokens: int, rows: int, hidden: int, dtype: torch.dtype) -> Piece:
    """A look-up whose gradient is added to that of the head."""
    weight = torch.randn(rows, hidden, dtype=dtype, requires_grad=True)
    weight.grad = torch.zeros_like(weight)
    ids, gradient = torch.randint(rows, (tokens,)), torch.randn(tokens, hidden, dtype=dtype)
    counts: Counts = {"embedding.weight": rows * hidden, "embedding.state": tokens * hidden}
    return counts, lambda: backward(F.embedding(ids, weight), gradient)
