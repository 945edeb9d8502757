"""The blocks of a decoder layer. Parameters come from the layout table; no block initialises anything itself.

B batch, S sequence, T = B S tokens, t the tokens of the token-wise side (see parallel.region; all T when the
model is not cut), H hidden, N query heads here, G KV heads here, D head size, I intermediate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from kitae.model import attention, kernels
from kitae.model.config import DecoderConfig
from kitae.parallel.layout import ParameterLayout
from kitae.parallel.region import Region


class Parameters:
    """The parameters below one dotted name."""

    def __init__(
        self,
        tensors: Mapping[str, nn.Parameter],
        layouts: Mapping[str, ParameterLayout],
        prefix: str = "",
    ) -> None:
        self.tensors = tensors
        self.layouts = layouts
        self.prefix = prefix

    def below(self, name: str) -> Parameters:
        """Those below `name`."""
        return Parameters(self.tensors, self.layouts, f"{self.prefix}{name}.")

    def get(self, name: str) -> nn.Parameter | None:
        """The parameter, or None where the table has none."""
        return self.tensors.get(self.prefix + name)

    def layout(self, name: str) -> ParameterLayout:
        """What of which full tensors the parameter is."""
        return self.layouts[self.prefix + name]

    def __getitem__(self, name: str) -> nn.Parameter:
        return self.tensors[self.prefix + name]


@dataclass(frozen=True)
class Context:
    """What all layers of one forward pass share."""

    cosine: torch.Tensor
    sine: torch.Tensor
    masks: Mapping[int | None, torch.Tensor | attention.OwnKernel | None]
    """By window."""
    region: Region
    recompute: bool = False
    """Whether norms and gated products are computed again in the backward pass."""


class Linear(nn.Module):
    """What x W^T + b needs."""

    def __init__(self, own: Parameters) -> None:
        super().__init__()
        self.weight = own["weight"]
        self.bias = own.get("bias")


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension."""

    def __init__(self, own: Parameters, eps: float) -> None:
        super().__init__()
        self.weight = own["weight"]
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Give the same shape and dtype as `x`."""
        return kernels.rms_norm(x, self.weight, self.eps)

    def into(self, linear: Linear, x: torch.Tensor, context: Context) -> torch.Tensor:
        """linear(norm(x)) of all tokens, [t, H] to [T, outputs here]."""
        return kernels.norm_linear(
            x, self.weight, self.eps, linear.weight, linear.bias, context.recompute, context.region
        )


class Attention(nn.Module):
    """Causal self-attention with grouped KV heads, rotary positions and an optional sliding window."""

    def __init__(self, config: DecoderConfig, own: Parameters, layer: int) -> None:
        super().__init__()
        self.qkv = Linear(own.below("qkv"))
        self.q_norm = RMSNorm(own.below("q_norm"), config.rms_norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(own.below("k_norm"), config.rms_norm_eps) if config.qk_norm else None
        self.out = Linear(own.below("out"))
        self.heads = [piece.local_shape[0] // config.head_dim for piece in own.layout("qkv.weight").pieces]
        self.head_dim = config.head_dim
        self.layer = layer
        self.window = config.windows[layer]

    def forward(self, x: torch.Tensor, norm: RMSNorm, context: Context) -> torch.Tensor:
        """Attend on norm(x): [t, H] to [t, H]."""
        batch_size, length = context.cosine.shape[:2]
        qkv = norm.into(self.qkv, x, context).view(batch_size, length, -1, self.head_dim)
        q, k, v = qkv.split_with_sizes(self.heads, 2)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = (kernels.rotate(one, context.cosine, context.sine) for one in (q, k))
        mixed = attention.attend(q, k, v, context.masks[self.window], self.window)
        mixed = mixed.reshape(batch_size * length, -1)
        return context.region.row_parallel(partial(F.linear, mixed, self.out.weight), self.out.bias)


class GatedMLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, own: Parameters) -> None:
        super().__init__()
        self.gate_up = Linear(own.below("gate_up"))
        self.down = Linear(own.below("down"))

    def forward(self, x: torch.Tensor, norm: RMSNorm, context: Context) -> torch.Tensor:
        """Transform norm(x): [t, H] to [t, H]."""
        gate_up = norm.into(self.gate_up, x, context)
        down = partial(kernels.gated_linear, gate_up, self.down.weight, recompute=context.recompute)
        return context.region.row_parallel(down, self.down.bias)


class Layer(nn.Module):
    """Attention and MLP, each on the norm of the running sum."""

    def __init__(self, config: DecoderConfig, own: Parameters, layer: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(own.below("attention_norm"), config.rms_norm_eps)
        self.attention = Attention(config, own.below("attention"), layer)
        self.mlp_norm = RMSNorm(own.below("mlp_norm"), config.rms_norm_eps)
        self.mlp = GatedMLP(own.below("mlp"))

    def forward(self, x: torch.Tensor, context: Context) -> torch.Tensor:
        """[t, H] to [t, H]."""
        x = x + self.attention(x, self.attention_norm, context)
        return x + self.mlp(x, self.mlp_norm, context)  # type: ignore[no-any-return]
