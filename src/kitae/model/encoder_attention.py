"""Softmax attention of whole rows: every token sees the first `lengths[b]` keys of its row.

B batch, S sequence, N heads here, D head size.

On a CPU in fp32, and wherever probabilities are dropped, it is written out, some rows of the batch at a
time: the probabilities are made again in the backward pass. Elsewhere one fused call does it. Measured on one
core (AMD Zen 5, torch 2.13, fp32, products by oneDNN), forward + backward, CPU ms, here / the fused call:

    B x S x N x D        nothing dropped    0.1 dropped
    16 x 128 x 12 x 32   23 / 84            31 / 40
    16 x 128 x 12 x 64   31 / 98            38 / 50
    4 x 512 x 12 x 64    98 / 122           130 / 201
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.nn import functional as F

from kitae.model.attention import blocked
from kitae.model.dropout import Keep
from kitae.model.kernels import product_dtype

Tensor = torch.Tensor
_SCORES = 1 << 20
"""Scores that are in memory together on a CPU; those of one row of the batch at the least."""


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
    """The factor of what stays is left out of the large products, and put into the small results."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, seen: Tensor, keep: Keep | None, recompute: bool) -> Tensor:
        q, k, v = _by_head(qkv)
        mask = None if keep is None else keep.mask()
        bias = torch.zeros(seen.shape, dtype=q.dtype, device=q.device).masked_fill_(~seen, float("-inf"))
        output: Tensor = q.new_empty(qkv.shape[:2] + qkv.shape[3:])
        for rows in _blocks(qkv):
            probabilities = _probabilities(q[rows], k[rows], bias[rows])
            if mask is not None:
                probabilities.mul_(mask[rows].to(q.dtype))
            torch.mul((probabilities @ v[rows]).transpose(1, 2), _factor(keep), out=output[rows])
        ctx.save_for_backward(q, k, v, bias, None if recompute else mask)
        ctx.keep, ctx.dtype = keep, qkv.dtype
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        q, k, v, bias, mask = ctx.saved_tensors
        keep: Keep | None = ctx.keep
        mask = keep.mask() if keep is not None and mask is None else mask
        factor, scale = _factor(keep), _scale(q) * _factor(keep)
        result = gradient.new_empty(*gradient.shape[:2], 3, *gradient.shape[2:], dtype=ctx.dtype)
        for rows in _blocks(gradient):
            probabilities = _probabilities(q[rows], k[rows], bias[rows])
            upstream = gradient[rows].transpose(1, 2)
            dropped, slopes = probabilities, upstream @ v[rows].mT
            if mask is not None:
                kept = mask[rows].to(q.dtype)
                dropped, slopes = probabilities * kept, slopes.mul_(kept)
            d_scores = torch.ops.aten._softmax_backward_data(slopes, probabilities, -1, q.dtype)
            torch.mul((d_scores @ k[rows]).transpose(1, 2), scale, out=result[rows, :, 0])
            torch.mul((d_scores.mT @ q[rows]).transpose(1, 2), scale, out=result[rows, :, 1])
            torch.mul((dropped.mT @ upstream).transpose(1, 2), factor, out=result[rows, :, 2])
        return result, None, None, None


def _by_head(qkv: Tensor) -> Tensor:
    """[B, S, 3, N, D] to a contiguous [3, B, N, S, D]."""
    return qkv.permute(2, 0, 3, 1, 4).contiguous()


def _blocks(like: Tensor) -> list[slice]:
    """Runs of rows of a batch [B, S, ..., N, D]; elsewhere than on a CPU all of them at once."""
    batch, length, heads = like.shape[0], like.shape[1], like.shape[-2]
    rows = max(1, _SCORES // (heads * length * length)) if like.device.type == "cpu" else batch
    return [slice(start, min(start + rows, batch)) for start in range(0, batch, rows)]


def _scale(q: Tensor) -> float:
    return float(q.shape[-1] ** -0.5)


def _factor(keep: Keep | None) -> float:
    return 1.0 if keep is None else keep.scale


def _probabilities(q: Tensor, k: Tensor, bias: Tensor) -> Tensor:
    """Softmax of the masked scores, [b, N, S, S] in the dtype of `q`, computed in fp32."""
    scores = ((q * _scale(q)) @ k.mT).add_(bias[:, None, None])
    return scores.softmax(-1, torch.float32).to(q.dtype)
