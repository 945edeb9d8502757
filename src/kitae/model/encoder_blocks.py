"""The blocks of an encoder layer: attention and MLP, each followed by the norm of its sum with its input.

B batch, S sequence, T = B S tokens, t the tokens of the token-wise side (see parallel.region), H hidden, N
heads here, D head size, I intermediate here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from kitae.model import encoder_kernels as kernels
from kitae.model.blocks import Linear, Parameters
from kitae.model.dropout import Keep, drop, keep_of_rows, keep_of_scores, keep_of_tokens
from kitae.model.encoder_attention import attend_all
from kitae.model.encoder_config import EncoderConfig
from kitae.parallel.region import Region

_SITES_BEFORE, _SITES_A_LAYER = 1, 3


@dataclass(frozen=True)
class Context:
    """What all layers of one forward pass share."""

    config: EncoderConfig
    shape: tuple[int, int]
    """Rows and length: B, S."""
    seen: torch.Tensor
    """[B, S] booleans: the keys that a row's tokens see."""
    region: Region
    keys: torch.Tensor | None
    """Of every site of dropout, [sites, 2, B]; None where nothing is dropped."""
    recompute: bool = False
    """Whether activations and masks are computed again in the backward pass."""

    def of_tokens(self, site: int) -> Keep | None:
        """What stays of token-wise hidden states [t, H]."""
        if self.keys is None:
            return None
        keep = keep_of_tokens(
            self.keys[site], self.shape[1], self.config.hidden_size, self.config.hidden_dropout
        )
        return keep and keep.on(self.region.own)

    def of_scores(self, site: int) -> Keep | None:
        """What stays of attention's probabilities [B, N, S, S]."""
        if self.keys is None:
            return None
        count = self.config.num_heads // self.region.group.size
        first = count * self.region.group.rank
        return keep_of_scores(
            self.keys[site], range(first, first + count), self.shape[1], self.config.attention_dropout
        )


def site_of(layer: int, part: int) -> int:
    """Number of a layer's site: attention's probabilities (0), its output (1), the MLP's output (2)."""
    return _SITES_BEFORE + _SITES_A_LAYER * layer + part


def keep_of_pooled(keys: torch.Tensor | None, config: EncoderConfig) -> Keep | None:
    """What stays of the pooled rows [B, H] before the classifier, with the keys [2, B] of their site."""
    return None if keys is None else keep_of_rows(keys, config.hidden_size, config.classifier_dropout)


class LayerNorm(nn.Module):
    """(x - mean) / deviation * weight + bias over the last dimension."""

    def __init__(self, own: Parameters, eps: float) -> None:
        super().__init__()
        self.weight = own["weight"]
        self.bias = own["bias"]
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Give the same shape, and statistics in fp32."""
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)


class Attention(nn.Module):
    """Self-attention of whole rows."""

    def __init__(self, config: EncoderConfig, own: Parameters, layer: int) -> None:
        super().__init__()
        self.qkv = Linear(own.below("qkv"))
        self.out = Linear(own.below("out"))
        self.head_dim = config.head_dim
        self.layer = layer

    def forward(self, x: torch.Tensor, context: Context) -> torch.Tensor:
        """[t, H] to [t, H]."""
        qkv = kernels.enter_linear(x, self.qkv.weight, self.qkv.bias, context.region)
        qkv = qkv.view(*context.shape, 3, -1, self.head_dim)
        mixed = attend_all(qkv, context.seen, context.of_scores(site_of(self.layer, 0)), context.recompute)
        linear = partial(F.linear, mixed.flatten(2).flatten(0, 1), self.out.weight)
        return context.region.row_parallel(linear, self.out.bias)


class MLP(nn.Module):
    """down(gelu(up(x)))."""

    def __init__(self, own: Parameters) -> None:
        super().__init__()
        self.up = Linear(own.below("up"))
        self.down = Linear(own.below("down"))

    def forward(self, x: torch.Tensor, context: Context) -> torch.Tensor:
        """[t, H] to [t, H]."""
        inner = kernels.enter_linear(x, self.up.weight, self.up.bias, context.region)
        down = partial(kernels.gelu_linear, inner, self.down.weight, recompute=context.recompute)
        return context.region.row_parallel(down, self.down.bias)


class EncoderLayer(nn.Module):
    """Attention and MLP; the norm comes after each sum."""

    def __init__(self, config: EncoderConfig, own: Parameters, layer: int) -> None:
        super().__init__()
        self.attention = Attention(config, own.below("attention"), layer)
        self.attention_norm = LayerNorm(own.below("attention_norm"), config.layer_norm_eps)
        self.mlp = MLP(own.below("mlp"))
        self.mlp_norm = LayerNorm(own.below("mlp_norm"), config.layer_norm_eps)
        self.layer = layer

    def forward(self, x: torch.Tensor, context: Context) -> torch.Tensor:
        """[t, H] to [t, H]."""
        attention, mlp = (context.of_tokens(site_of(self.layer, part)) for part in (1, 2))
        x = self.attention_norm(x + drop(self.attention(x, context), attention, context.recompute))
        return self.mlp_norm(x + drop(self.mlp(x, context), mlp, context.recompute))  # type: ignore[no-any-return]
