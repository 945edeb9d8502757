"""A global batch: the rows of one update, cut into micro-batches of one static shape. B rows, S positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kitae.data.packed import PackedData
from kitae.data.rows import IGNORED, IntArray, Rows, pad_rows


@dataclass(frozen=True)
class MicroBatch:
    """Rows of one forward and backward pass, int64 [B, S]."""

    samples: tuple[int, ...]
    """Numbers of the rows; fewer than B when the last ones are padding."""
    input_ids: torch.Tensor
    targets: torch.Tensor
    position_ids: torch.Tensor
    segment_ids: torch.Tensor | None
    """None when no row holds a second document: causal order alone then keeps padding out."""


@dataclass(frozen=True)
class GlobalBatch:
    """The micro-batches of one update, and its tokens."""

    micro_batches: tuple[MicroBatch, ...]
    target_tokens: int
    """Tokens that are predicted: loss and gradients are divided by this one number."""
    padded_tokens: int
    """Positions that are computed."""
    real_tokens: int
    """Positions that hold text."""


def global_batch(
    packed: PackedData, samples: Sequence[int], micro_batch_size: int, device: torch.device
) -> GlobalBatch:
    """Read the rows of one update; the last micro-batch is filled up with padded rows."""
    rows = packed.rows(samples)
    micro_batches = tuple(_cut(rows, samples, micro_batch_size, device))
    return GlobalBatch(
        micro_batches=micro_batches,
        target_tokens=int((rows.targets != IGNORED).sum()),
        padded_tokens=len(micro_batches) * micro_batch_size * packed.sequence_length,
        real_tokens=int((rows.segment_ids != 0).sum()),
    )


def _cut(rows: Rows, samples: Sequence[int], size: int, device: torch.device) -> Iterator[MicroBatch]:
    for start in range(0, len(samples), size):
        part = slice(start, start + size)
        padded = pad_rows(
            Rows(rows.input_ids[part], rows.targets[part], rows.position_ids[part], rows.segment_ids[part]),
            size,
        )
        yield MicroBatch(
            tuple(samples[part]),
            _tensor(padded.input_ids, device),
            _tensor(padded.targets, device),
            _tensor(padded.position_ids, device),
            _tensor(padded.segment_ids, device) if padded.segment_ids.max() > 1 else None,
        )


def _tensor(array: IntArray, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
