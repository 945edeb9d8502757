"""Which positions each token may attend to, as boolean tensors of static shape.

B batch, S queries, K keys. A token always sees itself, so no row is ever fully masked and softmax stays finite, also
for padding, which is a segment (0) of its own.
"""

from __future__ import annotations

import torch


def causal(queries: torch.Tensor, keys: torch.Tensor, window: int | None) -> torch.Tensor:
    """[S, K]: key index at or before the query's, and, with a window, fewer than `window` before it."""
    distance = queries[:, None] - keys[None, :]
    seen = distance >= 0
    return seen if window is None else seen & (distance < window)


def attention_mask(
    segment_ids: torch.Tensor | None, length: int, window: int | None, device: torch.device
) -> torch.Tensor | None:
    """[B, 1, S, S] for documents [B, S], [1, 1, S, S] for a window alone, None where plain causal is enough."""
    if segment_ids is None and (window is None or window >= length):
        return None
    index = torch.arange(length, device=device)
    seen = causal(index, index, window)[None]
    if segment_ids is not None:
        seen = seen & (segment_ids[:, :, None] == segment_ids[:, None, :])
    return seen[:, None]
