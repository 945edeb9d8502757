"""Softmax attention of whole rows: every token sees the first `lengths[b]` keys of its row.

B batch, S sequence, N heads here, D head size.

On a CPU in fp32, and wherever probabilities are dropped, it is written out, some rows of the batch at a
time: the probabilities are made again in the backward pass. Elsewhere one fused call does it. Measured on one
core (AMD Zen 5, torch 2.13, fp32, products by oneDNN), forward + backward, CPU ms, here / the fused call:

    B x S x N x D        nothing dropped    0.1 dropped
    16 x 128 x 12 x 32   26 / 85            37 / 40
    16 x 128 x 12 x 64   34 / 104           45 / 51
    4 x 512 x 12 x 64    104 / 110          149 / 208
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.nn import functional as F

from kitae.model.attention import blocked
from kitae.model.dropout import Keep, scaled_mask
from kitae.model.kernels import product_dtype

Tensor = torch.Tensor
_SCORES = 1 << 20
"""Scores that are in memory together; those of one row of the batch at the least."""


def visible(lengths: Tensor, length: int) -> Tensor:
    """[B, S] booleans: the keys that each row's tokens see. A row of none sees its first, to stay finite."""
    return torch.arange(length, device=lengths.device) < lengths.clamp(min=1)[:, None]


def attend_all(qkv: Tensor, seen: Tensor, keep: Keep | None, recompute: bool) -> Tensor:
    """Attention of queries, keys and values [B, S, 3, N, D] with the keys `seen` [B, S]: [B, S, N, D].

    `keep` says which probabilities [B, N, S, S] stay; with `recompute` it is asked again for backward.
    """
    if keep is not None or blocked(product_dtype(qkv), qkv.device):
        return _WrittenOut.apply(qkv, seen, keep, recompute)  # type: ignore[no-any-return, no-untyped-call]
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    mixed: Tensor = F.scaled_dot_product_attention(q, k, v, seen[:, None, None])
    return mixed.transpose(1, 2)


class _WrittenOut(Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, seen: Tensor, keep: Keep | None, recompute: bool) -> Tensor:
        q, k, v = _by_head(qkv)
        mask = None if keep is None else keep.mask()
        output: Tensor = q.new_empty(qkv.shape[:2] + qkv.shape[3:])
        for rows in _blocks(qkv):
            probabilities = _probabilities(q[rows], k[rows], seen[rows])
            dropped = _dropped(probabilities, keep, mask, rows)
            output[rows] = (dropped @ v[rows]).transpose(1, 2)
        ctx.save_for_backward(q, k, v, seen, None if recompute else mask)
        ctx.keep, ctx.dtype = keep, qkv.dtype
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        q, k, v, seen, mask = ctx.saved_tensors
        keep: Keep | None = ctx.keep
        mask = keep.mask() if keep is not None and mask is None else mask
        result = gradient.new_empty(*gradient.shape[:2], 3, *gradient.shape[2:], dtype=ctx.dtype)
        for rows in _blocks(gradient):
            probabilities = _probabilities(q[rows], k[rows], seen[rows])
            upstream = gradient[rows].transpose(1, 2)
            dropped = _dropped(probabilities, keep, mask, rows)
            d_probabilities = _dropped(upstream @ v[rows].mT, keep, mask, rows)
            d_scores = torch.ops.aten._softmax_backward_data(d_probabilities, probabilities, -1, q.dtype)
            d_q, d_k = (d_scores @ k[rows]).mul_(_scale(q)), (d_scores.mT @ q[rows]).mul_(_scale(q))
            for index, part in enumerate((d_q, d_k, dropped.mT @ upstream)):
                result[rows, :, index] = part.transpose(1, 2)
        return result, None, None, None


def _by_head(qkv: Tensor) -> Tensor:
    """[B, S, 3, N, D] to a contiguous [3, B, N, S, D]."""
    return qkv.permute(2, 0, 3, 1, 4).contiguous()


def _blocks(like: Tensor) -> list[slice]:
    """Runs of rows of a batch [B, S, ..., N, D]."""
    batch, length, heads = like.shape[0], like.shape[1], like.shape[-2]
    rows = max(1, _SCORES // (heads * length * length))
    return [slice(start, min(start + rows, batch)) for start in range(0, batch, rows)]


def _scale(q: Tensor) -> float:
    return float(q.shape[-1] ** -0.5)


def _probabilities(q: Tensor, k: Tensor, seen: Tensor) -> Tensor:
    """Softmax of the masked scores, [b, N, S, S] in the dtype of `q`, computed in fp32."""
    scores = (q * _scale(q)) @ k.mT
    return scores.masked_fill_(~seen[:, None, None], float("-inf")).softmax(-1, torch.float32).to(q.dtype)


def _dropped(values: Tensor, keep: Keep | None, mask: Tensor | None, rows: slice) -> Tensor:
    if keep is None or mask is None:
        return values
    return values * scaled_mask(keep, mask[rows], values.dtype)
