"""Keys and values of the tokens so far, in buffers of fixed size, looked at up to a few static lengths.

B rows, S new tokens, K capacity, G KV heads here, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

SMALLEST = 8
PER_DOUBLING = 4
"""How many lengths there are from one power of two to the next; a length is at most a quarter too long."""
Views = Sequence[tuple[torch.Tensor, torch.Tensor]]


def static_length(length: int) -> int:
    """The nearest length, not below this one, that shapes are made with: 8, 16, 24, 32, 40, ... 320, 384."""
    step = max(SMALLEST, (1 << max(1, length - 1).bit_length() - 1) // PER_DOUBLING)
    return max(1, -(-length // step)) * step


class KVCache:
    """One buffer [B, 2 G, K, D] a layer: its keys, then its values."""

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        num_layers: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """`shape` is B, G, K, D. Zeros: unwritten entries meet a share of zero, and zero times NaN is NaN."""
        rows, self.heads, self.capacity, size = shape
        self.buffers = [
            torch.zeros(rows, 2 * self.heads, self.capacity, size, dtype=dtype, device=device)
            for _ in range(num_layers)
        ]
        self._views: Views = ()
        self._length = 0

    def store(self, layer: int, slots: torch.Tensor, fresh: torch.Tensor) -> None:
        """Write keys and values [B, S, 2 G, D] at `slots` [S], a tensor, so that they are in no graph."""
        self.buffers[layer].index_copy_(2, slots, fresh.transpose(1, 2))

    def views(self, length: int) -> Views:
        """Keys and values [B, G, length, D] of every layer; `length` should be one of a few."""
        if length != self._length:
            assert length <= self.capacity, f"{length} of {self.capacity}"
            cut = [buffer.narrow(2, 0, length) for buffer in self.buffers]
            self._views = [(one[:, : self.heads], one[:, self.heads :]) for one in cut]
            self._length = length
        return self._views

    def take(self, rows: torch.Tensor) -> None:
        """Make these rows [int64], of which there may be several of one, the rows that are held."""
        self._views, self._length = (), 0  # they would keep the buffers that go
        for layer, buffer in enumerate(self.buffers):
            self.buffers[layer] = buffer.index_select(0, rows)
