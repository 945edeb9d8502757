"""Sources around a source: one that casts, and one that counts what is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

import torch

from kitae.checkpoint.bits import is_finite
from kitae.checkpoint.coverage import Coverage
from kitae.checkpoint.pipe import TensorInfo, TensorSource
from kitae.checkpoint.reading import reading
from kitae.errors import ProofError, WeightsError
from kitae.parallel.layout import Box

_REPORT_EVERY_S = 10.0


class Cast:
    """The tensors of a source in another dtype; None leaves each in its own."""

    def __init__(self, source: TensorSource, dtype: torch.dtype | None) -> None:
        self._source, self._dtype = source, dtype

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor's shape, and the dtype that it is given in."""
        infos = self._source.tensors()
        if self._dtype is None:
            return infos
        return {name: TensorInfo(info.shape, self._dtype) for name, info in infos.items()}

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        """The box of a tensor, cast; WeightsError when a finite value is too large for the dtype."""
        given = self._source.read(name, box)
        if self._dtype is None or given.dtype == self._dtype:
            return given
        cast = given.to(self._dtype)
        if not is_finite(cast) and is_finite(given):
            raise WeightsError(
                f"tensor {name} has values up to {given.abs().max().item():.3g}, which {_name(self._dtype)} "
                "cannot hold; choose another --dtype"
            )
        return cast


class Counting:
    """A source of which every value is to be read exactly once; says at times how far it is.

    The tensors `used` were read before.
    """

    def __init__(
        self,
        source: TensorSource,
        *,
        used: Collection[str] = (),
        finite: bool = False,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._source, self._finite, self._report = source, finite, report
        infos = source.tensors()
        self._coverage = Coverage({name: info.shape for name, info in infos.items()})
        for name in used:
            self._coverage.add(name, Box.whole(infos[name].shape), infos[name].shape)
        self._total_bytes, self._read_bytes = sum(info.nbytes for info in infos.values()), 0
        self._used_bytes = sum(infos[name].nbytes for name in used)
        self._began = self._said = time.monotonic()

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor's shape and dtype."""
        return self._source.tensors()

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        """The box of a tensor; ProofError the second time, WeightsError for a value that is not finite."""
        with reading(f"tensor {name}"):
            tensor = self._source.read(name, box)
        shape = tuple(tensor.shape)
        try:
            self._coverage.add(name, box or Box.whole(shape), shape)
        except WeightsError as error:
            raise ProofError(f"a part of the source is used twice: {error}; please report it") from error
        if self._finite and not is_finite(tensor):
            raise WeightsError(
                f"tensor {name} holds values that are not finite (NaN or infinity); no model computes with "
                "them: take another checkpoint, or convert them as they are with --proof none"
            )
        self._progress(tensor.nbytes)
        return tensor

    def check(self) -> None:
        """Raise ProofError unless every value was read."""
        try:
            self._coverage.check()
        except WeightsError as error:
            raise ProofError(f"not all of the source was used: {error}; please report it") from error

    def _progress(self, nbytes: int) -> None:
        self._read_bytes += nbytes
        now = time.monotonic()
        if now - self._said < _REPORT_EVERY_S:
            return
        self._said = now
        rate = self._read_bytes / (now - self._began)
        there = self._used_bytes + self._read_bytes
        self._report(f"{there / 1e9:.1f} of {self._total_bytes / 1e9:.1f} GB, {rate / 1e9:.2f} GB/s")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
