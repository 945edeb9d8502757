"""Euclidean norms of many numbers in fp32, which not every device can do in more."""

from __future__ import annotations

from collections.abc import Callable

import torch

_norm: Callable[..., torch.Tensor] = torch.linalg.vector_norm
_BLOCK = 256


def norm_of(tensor: torch.Tensor) -> torch.Tensor:
    """Norm of all elements of a tensor of any float dtype, an fp32 scalar: row by row, then over the rows."""
    rows = _norm(tensor, dim=-1, dtype=torch.float32)
    return _norm(rows) if rows.numel() <= _BLOCK else joint_norm(rows.flatten())


def joint_norm(norms: torch.Tensor) -> torch.Tensor:
    """Norm of what parts with these norms [n] make up together, block by block.

    A sum of n squares is off by a part of n: over the 49,152 rows of an embedding by 1e-5, in blocks by 1e-7.
    """
    while len(norms) > _BLOCK:
        whole = len(norms) // _BLOCK * _BLOCK
        norms = torch.cat((_norm(norms[:whole].view(-1, _BLOCK), dim=-1), norms[whole:]))
    return _norm(norms)
