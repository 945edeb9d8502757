"""The blocks of a decoder layer. Parameters come from the layout table; no block initialises anything itself.

B batch, S sequence, H hidden, N query heads, G KV heads, D head size, I intermediate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from kitae.model import attention, kernels
from kitae.model.cache import KVCache
from kitae.model.config import DecoderConfig


class Parameters:
    """The parameters below one dotted name."""

    def __init__(self, tensors: Mapping[str, nn.Parameter], prefix: str = "") -> None:
        self.tensors = tensors
        self.prefix = prefix

    def below(self, name: str) -> Parameters:
        """Those below `name`."""
        return Parameters(self.tensors, f"{self.prefix}{name}.")

    def get(self, name: str) -> nn.Parameter | None:
        """The parameter, or None where the table has none."""
        return self.tensors.get(self.prefix + name)

    def __getitem__(self, name: str) -> nn.Parameter:
        return self.tensors[self.prefix + name]


@dataclass(frozen=True)
class Context:
    """What all layers of one forward pass share."""

    cosine: torch.Tensor
    sine: torch.Tensor
    masks: Mapping[int | None, torch.Tensor | None]
    """By window."""
    cache: KVCache | None = None
    slots: torch.Tensor | None = None
    recompute: bool = False
    """Whether norms and gated products are computed again in the backward pass."""


class Linear(nn.Module):
    """y = x W^T + b."""

    def __init__(self, own: Parameters) -> None:
        super().__init__()
        self.weight = own["weight"]
        self.bias = own.get("bias")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., inputs] to [..., outputs]."""
        return F.linear(x, self.weight, self.bias)


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension."""

    def __init__(self, own: Parameters, eps: float) -> None:
        super().__init__()
        self.weight = own["weight"]
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Give the same shape and dtype as `x`."""
        return kernels.rms_norm(x, self.weight, self.eps)

    def into(self, linear: Linear, x: torch.Tensor, recompute: bool) -> torch.Tensor:
        """linear(norm(x)); with `recompute`, norm(x) is computed again in the backward pass."""
        return kernels.norm_linear(x, self.weight, self.eps, linear.weight, linear.bias, recompute)


class Attention(nn.Module):
    """Causal self-attention with grouped KV heads, rotary positions and an optional sliding window."""

    def __init__(self, config: DecoderConfig, own: Parameters, layer: int) -> None:
        super().__init__()
        self.qkv = Linear(own.below("qkv"))
        self.q_norm = RMSNorm(own.below("q_norm"), config.rms_norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(own.below("k_norm"), config.rms_norm_eps) if config.qk_norm else None
        self.out = Linear(own.below("out"))
        self.heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        self.head_dim = config.head_dim
        self.layer = layer
        self.window = config.windows[layer]

    def forward(self, x: torch.Tensor, norm: RMSNorm, context: Context) -> torch.Tensor:
        """Attend on norm(x): [B, S, H] to [B, S, H]."""
        batch, length, _ = x.shape
        qkv = norm.into(self.qkv, x, context.recompute)
        q, k, v = qkv.view(batch, length, -1, self.head_dim).split_with_sizes(self.heads, 2)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = (kernels.rotate(one, context.cosine, context.sine) for one in (q, k))
        return self.out(self._attend(q, k, v, context).reshape(batch, length, -1))  # type: ignore[no-any-return]

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, context: Context) -> torch.Tensor:
        """[B, S, N, D] on [B, S, G, D], or on the cache that they join, giving [B, S, N, D]."""
        mask = context.masks[self.window]
        if context.cache is None or context.slots is None:
            return attention.attend(q, k, v, mask, self.window)
        k, v = context.cache.store(self.layer, context.slots, k.transpose(1, 2), v.transpose(1, 2))
        return attention.fused(q.transpose(1, 2), k, v, mask).transpose(1, 2)


class GatedMLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, own: Parameters) -> None:
        super().__init__()
        self.gate_up = Linear(own.below("gate_up"))
        self.down = Linear(own.below("down"))

    def forward(self, x: torch.Tensor, norm: RMSNorm, recompute: bool) -> torch.Tensor:
        """Transform norm(x): [B, S, H] to [B, S, H]."""
        gate_up = norm.into(self.gate_up, x, recompute)
        return kernels.gated_linear(gate_up, self.down.weight, self.down.bias, recompute)


class Layer(nn.Module):
    """Attention and MLP, each on the norm of the running sum."""

    def __init__(self, config: DecoderConfig, own: Parameters, layer: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(own.below("attention_norm"), config.rms_norm_eps)
        self.attention = Attention(config, own.below("attention"), layer)
        self.mlp_norm = RMSNorm(own.below("mlp_norm"), config.rms_norm_eps)
        self.mlp = GatedMLP(own.below("mlp"))

    def forward(self, x: torch.Tensor, context: Context) -> torch.Tensor:
        """[B, S, H] to [B, S, H]."""
        x = x + self.attention(x, self.attention_norm, context)
        return x + self.mlp(x, self.mlp_norm, context.recompute)  # type: ignore[no-any-return]
