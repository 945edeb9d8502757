"""The loops that move weights: a box or two in memory at a time, whatever the two ends are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from kitae.checkpoint.coverage import listed
from kitae.checkpoint.live import LiveSink
from kitae.checkpoint.pipe import TensorSink, TensorSource, blocks
from kitae.errors import WeightsError
from kitae.parallel.layout import Box


def stream(
    source: TensorSource,
    sink: TensorSink,
    names: Iterable[str] | None = None,
    dtype: torch.dtype | None = None,
    wrote: Callable[[str], None] = lambda name: None,
) -> None:
    """Write the tensors `names` (default all), cast to `dtype` (default as they are); the sink stays open.

    Large ones go in runs of rows, of which the next is read while one is written. `wrote` is told the name of
    each that is complete.
    """
    infos = source.tensors()
    with ThreadPoolExecutor(1) as reader:
        for name in infos if names is None else names:
            boxes = list(blocks(infos[name]))
            coming: Future[torch.Tensor] | None = None
            for box, following in zip(boxes, [*boxes[1:], None], strict=True):
                values = coming.result() if coming else _read(source, name, box, dtype)
                coming = reader.submit(_read, source, name, following, dtype) if following else None
                sink.write(name, box, values)
                # Or they would live while the ones after the next are read.
                del values
            wrote(name)


def fill(source: TensorSource, sink: LiveSink) -> None:
    """Give a live sink all that it holds, reading only those boxes; it stays open.

    What else the source has is left alone: a rank may hold nothing of a tensor. WeightsError when the source
    lacks a tensor or has one of another shape.
    """
    found, wanted = source.tensors(), sink.tensors()
    missing = [name for name in wanted if name not in found]
    if missing:
        raise WeightsError(f"{len(missing)} of {len(wanted)} tensors are missing: {listed(missing)}")
    for name, info in wanted.items():
        if found[name].shape != info.shape:
            raise WeightsError(f"tensor {name} has shape {found[name].shape} where {info.shape} is due")
        for box in sink.boxes(name):
            sink.write(name, box, source.read(name, box))


def _read(source: TensorSource, name: str, box: Box, dtype: torch.dtype | None) -> torch.Tensor:
    tensor = source.read(name, box)
    return tensor if dtype is None else tensor.to(dtype)
