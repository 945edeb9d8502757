"""A global batch: the rows of one update, cut into micro-batches of one static shape. B rows, S positions.

With several copies of the model, neighbouring runs of B rows go to the copies in turn. Each makes the same
number of micro-batches, the last ones of padding where rows run out, so that nobody waits for a collective
that does not come.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kitae.data.packed import PackedData
from kitae.data.rows import IGNORED, IntArray, Rows, pad_rows
from kitae.parallel.mesh import Mesh, sum_over_copies


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
    """Those of this rank; the numbers below are those of all ranks."""
    target_tokens: int
    """Tokens that are predicted: loss and gradients are divided by this one number."""
    padded_tokens: int
    """Positions that are computed."""
    real_tokens: int
    """Positions that hold text."""


def global_batch(
    packed: PackedData,
    samples: Sequence[int],
    micro_batch_size: int,
    device: torch.device,
    mesh: Mesh | None = None,
) -> GlobalBatch:
    """Read this rank's rows of one update; micro-batches are filled up with padded rows."""
    mesh = mesh or Mesh()
    copies = mesh.data.size
    count = math.ceil(len(samples) / (micro_batch_size * copies))
    own = [_run(samples, micro_batch_size, index * copies + mesh.data.rank) for index in range(count)]
    rows = packed.rows([sample for run in own for sample in run])
    counts = torch.tensor([(rows.targets != IGNORED).sum(), (rows.segment_ids != 0).sum()])
    target_tokens, real_tokens = sum_over_copies(mesh, counts).tolist()
    return GlobalBatch(
        micro_batches=tuple(_cut(rows, own, micro_batch_size, device)),
        target_tokens=target_tokens,
        padded_tokens=count * copies * micro_batch_size * packed.sequence_length,
        real_tokens=real_tokens,
    )


def micro_batch(packed: PackedData, samples: Sequence[int], size: int, device: torch.device) -> MicroBatch:
    """Read the rows of one forward pass, filled up to `size` with padded rows."""
    return next(_cut(packed.rows(samples), [samples], size, device))


def _run(samples: Sequence[int], size: int, index: int) -> Sequence[int]:
    return samples[index * size : (index + 1) * size]


def _cut(rows: Rows, runs: Sequence[Sequence[int]], size: int, device: torch.device) -> Iterator[MicroBatch]:
    start = 0
    for samples in runs:
        part = slice(start, start + len(samples))
        start += len(samples)
        padded = pad_rows(
            Rows(rows.input_ids[part], rows.targets[part], rows.position_ids[part], rows.segment_ids[part]),
            size,
        )
        yield MicroBatch(
            tuple(samples),
            _tensor(padded.input_ids, device),
            _tensor(padded.targets, device),
            _tensor(padded.position_ids, device),
            _tensor(padded.segment_ids, device) if padded.segment_ids.max() > 1 else None,
        )


def _tensor(array: IntArray, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
