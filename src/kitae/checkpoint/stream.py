"""The loop that moves weights: one tensor in memory at a time, whatever the two ends are."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from kitae.checkpoint.pipe import TensorSink, TensorSource
from kitae.parallel.layout import Box


def stream(
    source: TensorSource,
    sink: TensorSink,
    names: Iterable[str] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write the tensors `names` (default all), cast to `dtype` (default as they are); the sink stays open."""
    infos = source.tensors()
    for name in infos if names is None else names:
        # A name for the tensor would keep it alive while the next one is read.
        sink.write(name, Box.whole(infos[name].shape), _read(source, name, dtype))


def _read(source: TensorSource, name: str, dtype: torch.dtype | None) -> torch.Tensor:
    tensor = source.read(name)
    return tensor if dtype is None else tensor.to(dtype)
