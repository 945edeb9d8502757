"""Softmax attention over grouped heads, cut where a causal mask makes work needless.

B batch, S sequence, N query heads, G KV heads, D head size, K keys.

On a CPU in fp32, blocks of 128 queries only meet the keys that the mask can leave them, and the query heads
of one KV head are rows of one product: nothing is expanded, and backward recomputes the probabilities.
Elsewhere one fused call (`scaled_dot_product_attention` with `enable_gqa`) does it. Measured on AMD EPYC with
torch 2.13, N=9 G=3 D=64, fp32, forward + backward, CPU ms on one thread, products by MKL / by oneDNN (see
backend.cpu):

    B x S       fused, causal   fused, mask    fused, K and V expanded   blocks of 128, mask
    2 x 256     12.2 / 13.3     12.4 / 13.3    12.7                      10.8 / 6.4
    2 x 512     46.7 / 37.5     48.3 / 38.6    48.4                      36.5 / 20.6
    1 x 1024    69.5 / 42.2     96.4 / 61.7    71.0                      63.9 / 37.2
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import Function
from torch.nn import functional as F

QUERY_BLOCK = 128
Tensor = torch.Tensor


def blocked(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether attention runs in query blocks; in bf16 the fused call keeps more digits of the scores."""
    return device.type == "cpu" and dtype == torch.float32


def causal(queries: Tensor, keys: Tensor, window: int | None) -> Tensor:
    """[S, K]: key index at or before the query's, and, with a window, fewer than `window` before it."""
    distance = queries[:, None] - keys[None, :]
    seen = distance >= 0
    return seen if window is None else seen & (distance < window)


def attention_mask(
    segment_ids: Tensor | None, length: int, window: int | None, dtype: torch.dtype, device: torch.device
) -> Tensor | None:
    """What `attend` takes: [B, 1, S, S] for documents [B, S], [1, 1, S, S] for causal rows and windows.

    For blocks an fp32 bias of 0 or -inf, else booleans, or None where the causal flag is enough. A token
    always sees itself, so no row is ever fully masked and softmax stays finite, also for padding, which is a
    segment (0) of its own.
    """
    if segment_ids is None and window is None and not blocked(dtype, device):
        return None
    index = torch.arange(length, device=device)
    seen = causal(index, index, window)[None]
    if segment_ids is not None:
        seen = seen & (segment_ids[:, :, None] == segment_ids[:, None, :])
    seen = seen[:, None]
    return torch.zeros(seen.shape).masked_fill_(~seen, float("-inf")) if blocked(dtype, device) else seen


@dataclass(frozen=True)
class OwnKernel:
    """Causal attention by a kernel of the device, which stands where a mask would (see neuron_attention)."""

    run: Callable[[Tensor, Tensor, Tensor], Tensor]
    """As `attend` without a mask."""


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | OwnKernel | None, window: int | None) -> Tensor:
    """Attention in a causal row of queries [B, S, N, D] on keys and values [B, S, G, D]: [B, S, N, D]."""
    if isinstance(mask, OwnKernel):
        return mask.run(q, k, v)
    if mask is not None and blocked(q.dtype, q.device):
        return _Blocked.apply(q, k, v, mask, window)  # type: ignore[no-any-return, no-untyped-call]
    return fused(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask).transpose(1, 2)


def fused(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
    """Attention of [B, N, S, D] on [B, G, K, D] in one call; without a mask it is causal and S = K."""
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, seen, is_causal=seen is None, enable_gqa=grouped)


class _Blocked(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, window: int | None) -> Tensor:
        keys, values = _by_head(k), _by_head(v)
        output = torch.empty(q.shape, dtype=q.dtype)
        for block, seen in _blocks(q.shape[1], window):
            rows = _rows(q, block, k.shape[2]).mul(_scale(q))
            probabilities = _probabilities(rows, keys, bias, block, seen)
            output[:, block] = _unrows(torch.bmm(probabilities, values[:, seen]), q, block)
        ctx.save_for_backward(q, keys, values, bias)
        ctx.window, ctx.groups = window, k.shape[2]
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, keys, values, bias = ctx.saved_tensors
        dq = torch.empty(q.shape, dtype=q.dtype)
        dk, dv = torch.zeros_like(keys), torch.zeros_like(values)
        for block, seen in _blocks(q.shape[1], ctx.window):
            rows, upstream = _rows(q, block, ctx.groups).mul(_scale(q)), _rows(gradient, block, ctx.groups)
            probabilities = _probabilities(rows, keys, bias, block, seen)
            dv[:, seen].baddbmm_(probabilities.mT, upstream)
            d_scores = torch.bmm(upstream, values[:, seen].mT)
            d_scores = torch.ops.aten._softmax_backward_data(d_scores, probabilities, -1, q.dtype)
            dk[:, seen].baddbmm_(d_scores.mT, rows)
            dq[:, block] = _unrows(torch.bmm(d_scores, keys[:, seen]).mul_(_scale(q)), q, block)
        shape = (q.shape[0], ctx.groups, q.shape[1], q.shape[3])
        return dq, dk.view(shape).transpose(1, 2), dv.view(shape).transpose(1, 2), None, None


def _blocks(length: int, window: int | None) -> list[tuple[slice, slice]]:
    """Runs of queries, and the run of keys that any of them can see."""
    starts = range(0, length, QUERY_BLOCK)
    first = [0 if window is None else max(0, start - window + 1) for start in starts]
    ends = [min(start + QUERY_BLOCK, length) for start in starts]
    return [(slice(start, end), slice(key, end)) for start, end, key in zip(starts, ends, first, strict=True)]


def _scale(q: Tensor) -> float:
    return float(q.shape[-1] ** -0.5)


def _by_head(x: Tensor) -> Tensor:
    """[B, S, G, D] to a contiguous [B G, S, D]."""
    return x.transpose(1, 2).reshape(-1, x.shape[1], x.shape[3])


def _rows(x: Tensor, block: slice, groups: int) -> Tensor:
    """The block's part of [B, S, N, D] as [B G, N/G block, D]: one run of rows for each KV head."""
    batch, _, heads, size = x.shape
    part = x[:, block].reshape(batch, -1, groups, heads // groups, size)
    return part.permute(0, 2, 3, 1, 4).reshape(batch * groups, -1, size)


def _unrows(rows: Tensor, like: Tensor, block: slice) -> Tensor:
    """[B G, N/G block, D] back to the block's [B, block, N, D], as a view."""
    batch, _, heads, size = like.shape
    return rows.view(batch, heads, block.stop - block.start, size).transpose(1, 2)


def _probabilities(rows: Tensor, keys: Tensor, bias: Tensor, block: slice, seen: slice) -> Tensor:
    """Softmax of the masked scores of scaled rows, [B G, N/G block, K]."""
    scores = torch.bmm(rows, keys[:, seen].mT)
    part = bias[:, :, block, seen]
    scores.view(part.shape[0], -1, *part.shape[2:]).add_(part)
    return scores.softmax(-1)
