"""The blocks of a decoder layer. Parameters come from the layout table; no block initialises anything itself.

B batch, S sequence, H hidden, N query heads, G KV heads, D head size, I intermediate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

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
    """x / rms(x) * weight over the last dimension, computed in fp32."""

    def __init__(self, own: Parameters, eps: float) -> None:
        super().__init__()
        self.weight = own["weight"]
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape and dtype as `x`."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class Attention(nn.Module):
    """Causal self-attention with grouped KV heads, rotary positions and an optional sliding window."""

    def __init__(self, config: DecoderConfig, own: Parameters, layer: int) -> None:
        super().__init__()
        self.qkv = Linear(own.below("qkv"))
        self.out = Linear(own.below("out"))
        self.q_norm = RMSNorm(own.below("q_norm"), config.rms_norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(own.below("k_norm"), config.rms_norm_eps) if config.qk_norm else None
        self.heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        self.head_dim = config.head_dim
        self.layer = layer
        self.window = config.windows[layer]

    def forward(self, x: torch.Tensor, context: Context) -> torch.Tensor:
        """[B, S, H] to [B, S, H]."""
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, -1, self.head_dim).split(self.heads, 2)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, context), rotate(k, context)
        y = attend(q, k, v, self.layer, self.window, context)
        return self.out(y.reshape(batch, length, -1))


class GatedMLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, own: Parameters) -> None:
        super().__init__()
        self.gate_up = Linear(own.below("gate_up"))
        self.down = Linear(own.below("down"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, S, H] to [B, S, H]."""
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


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
        x = x + self.attention(self.attention_norm(x), context)
        return x + self.mlp(self.mlp_norm(x))


def rotate(x: torch.Tensor, context: Context) -> torch.Tensor:
    """Rotate the pairs (i, i + D/2) of each head of [B, S, N, D] by its position's angles."""
    first, second = x.chunk(2, -1)
    turned = torch.cat((-second, first), -1)
    return (x * context.cosine + turned * context.sine).to(x.dtype)


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: int, window: int | None, context: Context
) -> torch.Tensor:
    """Softmax attention of [B, S, N, D] on [B, S, G, D] (and the cache), giving [B, S, N, D]."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    if context.cache is not None and context.slots is not None:
        k, v = context.cache.store(layer, context.slots, k, v)
    seen = context.masks[window]
    y = F.scaled_dot_product_attention(
        q, k, v, seen, is_causal=seen is None, enable_gqa=q.shape[1] != k.shape[1]
    )
    return y.transpose(1, 2)


Recomputed = Callable[[Layer, torch.Tensor, Context], torch.Tensor]
