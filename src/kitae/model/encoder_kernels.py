"""Forward and backward passes of an encoder, written out where autograd's own would keep or move more.

`enter_linear` keeps its own tokens where autograd would keep all ranks' ones; `gelu_linear` keeps 2 I numbers
a token, and I when recomputed. Each is checked against autograd in tests/model/test_encoder_kernels.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.nn import functional as F

from kitae.model.kernels import Maybe, linear_of, product_dtype, weight_gradients
from kitae.parallel.region import UNCUT, Region

Tensor = torch.Tensor


def enter_linear(x: Tensor, weight: Tensor, bias: Maybe, region: Region = UNCUT) -> Tensor:
    """linear(enter(x)): token-wise [t, H] to [T, O] of all tokens and this rank's outputs."""
    return _EnterLinear.apply(x, weight, bias, region)  # type: ignore[no-any-return, no-untyped-call]


def gelu_linear(inner: Tensor, weight: Tensor, bias: Maybe, recompute: bool = False) -> Tensor:
    """linear(gelu(inner)); with `recompute` the activation is not kept for backward."""
    return _GeluLinear.apply(inner, weight, bias, recompute)  # type: ignore[no-any-return, no-untyped-call]


class _EnterLinear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Maybe, region: Region) -> Tensor:
        own = x.to(product_dtype(x))
        ctx.dtype, ctx.region, ctx.bias = x.dtype, region, None if bias is None else bias.dtype
        ctx.save_for_backward(own, weight)
        return linear_of(region.gather(own), weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Maybe, ...]:
        own, weight = ctx.saved_tensors
        # what the ranks exchange travels while the products are made that do not need it
        gathering = ctx.region.begin_gather(own)
        reducing = ctx.region.begin_reduce(gradient @ weight.to(own.dtype))
        d_weight, d_bias = weight_gradients(gradient, gathering.wait(), weight.dtype, ctx.bias)
        return reducing.wait().to(ctx.dtype), d_weight, d_bias, None


class _GeluLinear(Function):
    @staticmethod
    def forward(ctx: Any, inner: Tensor, weight: Tensor, bias: Maybe, recompute: bool) -> Tensor:
        activated = F.gelu(inner)
        ctx.bias = None if bias is None else bias.dtype
        ctx.save_for_backward(inner, weight, None if recompute else activated)
        return linear_of(activated, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Maybe, ...]:
        inner, weight, activated = ctx.saved_tensors
        activated = F.gelu(inner) if activated is None else activated
        d_activated = gradient @ weight.to(gradient.dtype)
        d_weight, d_bias = weight_gradients(gradient, activated, weight.dtype, ctx.bias)
        return torch.ops.aten.gelu_backward(d_activated, inner), d_weight, d_bias, None
