"""Keys and values of the tokens so far, in buffers of fixed size.

B batch, S new tokens, K capacity, G KV heads, D head size.
"""

from __future__ import annotations

import torch

from kitae.model.attention import causal
from kitae.model.config import DecoderConfig


class KVCache:
    """One key and one value buffer [B, G, K, D] a layer; `length` tokens are in it."""

    def __init__(
        self, config: DecoderConfig, batch_size: int, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Zeros, because unwritten entries meet a probability of zero, and zero times NaN is NaN."""
        shape = (config.num_layers, batch_size, config.num_kv_heads, capacity, config.head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.capacity = capacity
        self.length = 0

    def slots(self, count: int) -> torch.Tensor:
        """Indices [S] of the next `count` tokens."""
        assert self.length + count <= self.capacity, f"{self.length} + {count} tokens exceed {self.capacity}"
        return torch.arange(self.length, self.length + count, device=self.keys.device)

    def store(
        self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values [B, G, S, D] of one layer; returns the whole buffers [B, G, K, D]."""
        self.keys[layer].index_copy_(2, slots, keys)
        self.values[layer].index_copy_(2, slots, values)
        return self.keys[layer], self.values[layer]

    def mask(self, slots: torch.Tensor, window: int | None) -> torch.Tensor:
        """[1, 1, S, K]: which buffer entries the tokens at `slots` see."""
        return causal(slots, torch.arange(self.capacity, device=slots.device), window)[None, None]
