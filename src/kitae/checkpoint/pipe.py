"""The one pipe that weights flow through: a source reads boxes, a sink takes them, one tensor at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from kitae.parallel.layout import Box, Shape


@dataclass(frozen=True)
class TensorInfo:
    """Shape and dtype of a full tensor."""

    shape: Shape
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


class TensorSource(Protocol):
    """Full tensors by name, of which any box can be read."""

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor's shape and dtype, without reading any values."""
        ...

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        """The box of a tensor (all of it by default), in the source's dtype, on the CPU."""
        ...


class TensorSink(Protocol):
    """Takes boxes of full tensors."""

    def write(self, name: str, box: Box, tensor: torch.Tensor) -> None:
        """Take one box of the full tensor `name`."""
        ...

    def close(self) -> None:
        """Finish: after this the result is complete and durable."""
        ...


class Selection:
    """The tensors of a source that are asked for, and no others."""

    def __init__(self, source: TensorSource, names: Iterable[str]) -> None:
        self._source = source
        infos = source.tensors()
        self._infos = {name: infos[name] for name in names}

    def tensors(self) -> Mapping[str, TensorInfo]:
        """The chosen tensors' shapes and dtypes."""
        return self._infos

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        """The box of a chosen tensor."""
        assert name in self._infos, f"{name} was not chosen"
        return self._source.read(name, box)
