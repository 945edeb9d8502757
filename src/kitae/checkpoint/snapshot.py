"""A copy of the state in host memory, so that training goes on while it is written."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from kitae.checkpoint.live import LiveSource
from kitae.checkpoint.parts import Task
from kitae.checkpoint.pipe import TensorInfo
from kitae.parallel.layout import Box

Buffers = dict[tuple[str, Box], torch.Tensor]


class Snapshot:
    """Memory for copies, reused by the next copy: then it is one pass over memory that is there already."""

    def __init__(self) -> None:
        self._buffers: dict[str, Buffers] = {}

    def take(self, sources: Mapping[str, LiveSource], task: Task) -> dict[str, Copied]:
        """Copy the boxes of a task; what was taken before is overwritten."""
        self._buffers = {kind: self._copied(kind, sources[kind], task) for kind in task.boxes}
        return {kind: Copied(sources[kind].tensors(), buffers) for kind, buffers in self._buffers.items()}

    def _copied(self, kind: str, source: LiveSource, task: Task) -> Buffers:
        before = self._buffers.get(kind, {})
        return {
            (name, box): _copy(source, name, box, before.get((name, box)))
            for name, boxes in task.boxes[kind].items()
            for box in boxes
        }


class Copied:
    """The copies of one kind as a source of just those boxes."""

    def __init__(self, infos: Mapping[str, TensorInfo], buffers: Buffers) -> None:
        self._infos = infos
        self._buffers = buffers

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Shapes and dtypes of the tensors, as they were when copied."""
        return self._infos

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        """The copy of a box."""
        return self._buffers[name, box or Box.whole(self._infos[name].shape)]


def _copy(source: LiveSource, name: str, box: Box, buffer: torch.Tensor | None) -> torch.Tensor:
    values = source.view(name, box)
    if values is None:
        values = source.read(name, box)
    if buffer is None or buffer.dtype != values.dtype:
        # Pinned memory is what a GPU writes to at full speed.
        buffer = torch.empty(box.shape, dtype=values.dtype, pin_memory=values.is_cuda)
    return buffer.copy_(values)
