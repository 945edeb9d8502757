"""Forward and backward passes written out where autograd's own would move or keep much more memory.

All compute in the input's dtype, products under torch.autocast in its dtype, except the norm's statistics and
its gradient, which are fp32. Saved for backward, in units of tokens x hidden (H) or tokens x intermediate
(I), against plain autograd:

    norm_linear    2 H (H when recomputed)     against 4 H
    gated_linear   3 I (2 I when recomputed)   against 4 I
    rotate         nothing but the tables      against 2 copies of its input

A recomputed value comes from the same operations on the same tensors, so gradients are the same to the bit.
Every function here is checked against autograd in tests/model/test_kernels.py. N rows, O outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.nn import functional as F

from kitae.parallel.region import UNCUT, Region

Tensor = torch.Tensor
Maybe = Tensor | None


def product_dtype(like: Tensor) -> torch.dtype:
    """What matrix products compute in: the tensor's dtype, or autocast's where it is on."""
    kind = like.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return like.dtype


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """X / rms(x) * weight over the last dimension, in x's dtype, with fp32 statistics."""
    return _RMSNorm.apply(x, weight, eps)  # type: ignore[no-any-return, no-untyped-call]


def norm_linear(
    x: Tensor,
    norm: Tensor,
    eps: float,
    weight: Tensor,
    bias: Maybe,
    recompute: bool = False,
    region: Region = UNCUT,
) -> Tensor:
    """linear(enter(rms_norm(x))): token-wise [..., H] to [..., O] of all tokens and this rank's outputs.

    With `recompute` the norm is not kept for backward. What other ranks gave never is: it is gathered again.
    """
    return _NormLinear.apply(x, norm, eps, weight, bias, recompute, region)  # type: ignore[no-any-return, no-untyped-call]


def gated_linear(gate_up: Tensor, weight: Tensor, bias: Maybe, recompute: bool = False) -> Tensor:
    """linear(silu(gate) * up) of [..., 2 I]; with `recompute` the product is not kept for backward."""
    return _GatedLinear.apply(gate_up, weight, bias, recompute)  # type: ignore[no-any-return, no-untyped-call]


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn the pairs (i, i + D/2) of [B, S, heads, D] by the angles of [B, S, 1, D/2] tables."""
    return _Rotate.apply(x, cosine, sine)  # type: ignore[no-any-return, no-untyped-call]


class _RMSNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = _scale(x, eps)
        ctx.save_for_backward(x, scale, weight)
        return _normed(x, scale, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Maybe, ...]:
        return (*_norm_gradients(gradient, *ctx.saved_tensors), None)


class _NormLinear(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        norm: Tensor,
        eps: float,
        weight: Tensor,
        bias: Maybe,
        recompute: bool,
        region: Region,
    ) -> Tensor:
        scale = _scale(x, eps)
        ctx.dtype, ctx.region, ctx.bias = product_dtype(x), region, _dtype(bias)
        normed = _normed(x, scale, norm).to(ctx.dtype)
        ctx.save_for_backward(x, scale, norm, weight, None if recompute else normed)
        return linear_of(region.gather(normed), weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Maybe, ...]:
        x, scale, norm, weight, normed = ctx.saved_tensors
        normed = _normed(x, scale, norm).to(ctx.dtype) if normed is None else normed
        # what the ranks exchange travels while the products are made that do not need it
        gathering = ctx.region.begin_gather(normed)
        reducing = ctx.region.begin_reduce(gradient @ weight.to(ctx.dtype))
        d_weight, d_bias = weight_gradients(gradient, gathering.wait(), weight.dtype, ctx.bias)
        dx, d_norm = _norm_gradients(reducing.wait(), x, scale, norm)
        return dx, d_norm, None, d_weight, d_bias, None, None


class _GatedLinear(Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor, weight: Tensor, bias: Maybe, recompute: bool) -> Tensor:
        gate, up = gate_up.chunk(2, -1)
        product = F.silu(gate).mul_(up)
        ctx.bias = _dtype(bias)
        ctx.save_for_backward(gate_up, weight, None if recompute else product)
        return linear_of(product, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Maybe, ...]:
        gate_up, weight, product = ctx.saved_tensors
        gate, up = gate_up.chunk(2, -1)
        activated = F.silu(gate)
        product = activated * up if product is None else product
        d_product = gradient @ weight.to(gradient.dtype)
        d_weight, d_bias = weight_gradients(gradient, product, weight.dtype, ctx.bias)
        d_up = activated.mul_(d_product)
        d_gate = torch.ops.aten.silu_backward(d_product.mul_(up), gate)
        return torch.cat((d_gate, d_up), -1), d_weight, d_bias, None


class _Rotate(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine, sine)
        return _turned(x, cosine, sine, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Maybe, ...]:
        cosine, sine = ctx.saved_tensors
        return _turned(gradient, cosine, sine, -1), None, None


def _scale(x: Tensor, eps: float) -> Tensor:
    """1 / rms of each row, fp32 [..., 1]: the norm only reads x; a mean of squares would write a copy."""
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    return length.square_().div_(x.shape[-1]).add_(eps).rsqrt_()


def _normed(x: Tensor, scale: Tensor, weight: Tensor) -> Tensor:
    normed: Tensor = (x * scale).to(x.dtype)
    normed *= weight
    return normed


def _norm_gradients(gradient: Tensor, x: Tensor, scale: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of x and the norm's weight; both sums are matrix-vector products over one product tensor."""
    size = x.shape[-1]
    gradient, wide = gradient.float(), weight.float()
    product = (gradient * x).view(-1, size)
    d_weight = (scale.view(1, -1) @ product).view(size)
    along = (product @ wide).view_as(scale)
    correction = scale.pow(3).mul_(along).div_(-size)
    dx = (gradient * wide).mul_(scale).addcmul_(x, correction)
    return dx.to(x.dtype), d_weight.to(weight.dtype)


def _dtype(bias: Maybe) -> torch.dtype | None:
    return None if bias is None else bias.dtype


def linear_of(inputs: Tensor, weight: Tensor, bias: Maybe) -> Tensor:
    """Give x W^T + b in the dtype of the inputs."""
    return F.linear(inputs, weight.to(inputs.dtype), None if bias is None else bias.to(inputs.dtype))


def weight_gradients(
    gradient: Tensor, inputs: Tensor, weight: torch.dtype, bias: torch.dtype | None
) -> tuple[Tensor, Maybe]:
    """Gradients of a linear layer's weight and bias, in their dtypes."""
    rows = gradient.reshape(-1, gradient.shape[-1])
    d_weight = (rows.t() @ inputs.view(-1, inputs.shape[-1])).to(weight)
    return d_weight, None if bias is None else rows.sum(0, dtype=bias)


def _turned(x: Tensor, cosine: Tensor, sine: Tensor, sign: int) -> Tensor:
    first, second = x.chunk(2, -1)
    turned = torch.cat(
        (
            torch.addcmul(first * cosine, second, sine, value=-sign),
            torch.addcmul(second * cosine, first, sine, value=sign),
        ),
        -1,
    )
    return turned.to(x.dtype)
