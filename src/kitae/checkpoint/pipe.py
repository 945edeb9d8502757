"""The one pipe that weights flow through: a source reads boxes, a sink takes them, one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, TypeVar

import torch

from kitae.parallel.layout import Box, Shape

_Sink = TypeVar("_Sink", bound="ScopedSink")
BLOCK_BYTES = 16 << 20
"""How much of a tensor is held at once where a part of it will do. From 32 MiB on, glibc gives each block new
pages: reading and writing then took 1.3 times the time of the CPU."""


@dataclass(frozen=True)
class TensorInfo:
    """Shape and dtype of a full tensor."""

    shape: Shape
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def blocks(info: TensorInfo, most_bytes: int = BLOCK_BYTES) -> Iterator[Box]:
    """A tensor in runs of rows of at most so many bytes, or of one row."""
    if not info.shape:
        yield Box((), ())
        return
    row = max(1, info.nbytes // max(1, info.shape[0]))
    step = max(1, most_bytes // row)
    rest = info.shape[1:]
    for start in range(0, info.shape[0], step):
        yield Box((start, *(0,) * len(rest)), (min(step, info.shape[0] - start), *rest))


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


class ScopedSink(ABC):
    """A sink to be used in a `with` block: closed at its end, given up when it fails."""

    @abstractmethod
    def close(self) -> None:
        """Finish: after this the result is complete and durable."""

    @abstractmethod
    def abort(self) -> None:
        """Give up what was written so far."""

    def __enter__(self: _Sink) -> _Sink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


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


class Renamed:
    """The tensors of a source under other names; those that get none are left out."""

    def __init__(self, source: TensorSource, stored: Mapping[str, str]) -> None:
        """`stored` gives the source's name for each new one."""
        self._source, self._stored = source, stored
        infos = source.tensors()
        self._infos = {name: infos[own] for name, own in stored.items()}

    def tensors(self) -> Mapping[str, TensorInfo]:
        """The renamed tensors' shapes and dtypes."""
        return self._infos

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        """The box of a renamed tensor."""
        return self._source.read(self._stored[name], box)
