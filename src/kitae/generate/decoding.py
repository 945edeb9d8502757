"""Rows of tokens in the making: prompts of different lengths run in chunks, then a token each at a time.

Shorter prompts are padded on the left, so that all rows grow at the same place. All shapes come from a few
lengths (`static_length`), and where that place is, is a tensor. B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kitae.generate.cache import KVCache, static_length
from kitae.generate.network import Network

CHUNK = 512
"""Tokens of a row that run at once."""


class Decoding:
    """A batch of rows with the cache of what they hold."""

    def __init__(
        self, network: Network, prompts: Sequence[Sequence[int]], new_tokens: int, chunk: int = CHUNK
    ) -> None:
        """`new_tokens` is how many each row may get at most."""
        self._network = network
        self._padded = padded_length(max(map(len, prompts)), chunk)
        self._chunk = chunk
        self._ids = left_padded(prompts, self._padded).to(network.device)
        self._pads = self._padded - torch.tensor([len(one) for one in prompts], device=network.device)
        self._cache: KVCache = network.cache(len(prompts), static_length(self._padded + new_tokens))
        self._length = 0
        self._slot = torch.zeros(1, dtype=torch.int64, device=network.device)

    def prefill(self) -> torch.Tensor:
        """Logits [B, V] of each row's first new token, fp32."""
        first = self._padded % self._chunk or self._chunk
        sizes = [first, *[self._chunk] * ((self._padded - first) // self._chunk)]
        for ids in torch.split(self._ids, sizes, 1):
            hidden = self._run(ids)
        return self._network.logits(hidden.view(*ids.shape, -1)[:, -1])

    def take(self, rows: Sequence[int]) -> None:
        """Go on with these rows alone, of which there may be several of one."""
        places = torch.tensor(rows, device=self._network.device)
        self._cache.take(places)
        self._pads = self._pads[places]

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits [B, V] after one more token of each row [B], fp32."""
        return self._network.logits(self._run(ids.to(self._network.device)[:, None]))

    def _run(self, ids: torch.Tensor) -> torch.Tensor:
        count = ids.shape[1]
        slots = self._slot + torch.arange(count, device=self._network.device)
        self._length += count
        self._slot += count
        length = min(static_length(self._length), self._cache.capacity)
        step = self._network.step(slots, self._pads, length)
        return self._network.hidden(ids, step, self._cache)


def padded_length(longest: int, chunk: int) -> int:
    """Tokens that rows are padded to: whole chunks behind a first one of a static length."""
    rest = longest % chunk
    return longest - rest + (min(static_length(rest), chunk) if rest else 0)


def left_padded(rows: Sequence[Sequence[int]], length: int) -> torch.Tensor:
    """Ids [B, length] with zeros before each row."""
    ids = torch.zeros(len(rows), length, dtype=torch.int64)
    for place, row in enumerate(rows):
        ids[place, length - len(row) :] = torch.tensor(row)
    return ids
