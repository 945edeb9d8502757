"""How the matrices of a model that only computes forward are kept, and how each kind is multiplied.

T tokens, N outputs, K inputs. Milliseconds of all products of SmolLM2-135M for T tokens, on one thread of an
AMD EPYC (Zen 5) with torch 2.13, fp32 products by oneDNN (backend.cpu):

    T                           1      4      8
    fp32, [N, K]               30     35     39
    fp32, [K, N]               25     28     30
    bf16, [N, K]               19     20     22
    int8, packed kernel        9.7    9.9   17
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn import functional as F

Tensor = torch.Tensor
PACKED_TOKENS = 24
"""Up to how many tokens the packed kernel reads int8 weights faster than they are turned into bf16 first."""
WIDE = 16384
"""From how many outputs on, such as a vocabulary's, MKL reads columns for one token faster than oneDNN."""
_PACKED_INPUTS = 16
"""Inputs of the packed kernel must be a multiple: it reads past the end otherwise."""


class SmallProducts:
    """While entered, fp32 products on a CPU are not by oneDNN, which prepares a kernel for each of them.

    The CPU backend routes them there for the sake of large ones. The attention of one new token, with 9 heads
    on 3 and 96 keys, takes 68 us so and 10 us without, that of 64 tokens 451 and 126 (one core of an AMD
    EPYC, torch 2.13); to enter and leave takes 0.5 us.
    """

    _settings: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]

    def __enter__(self) -> None:
        self._before = self._settings.fp32_precision
        self._settings.fp32_precision = "ieee"

    def __exit__(self, *error: object) -> None:
        self._settings.fp32_precision = self._before


class Matrix(Protocol):
    """A weight [N, K] without gradients."""

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply: x W^T of [T, K], [T, N] in the dtype of x."""
        ...

    def rows(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows of the matrix for ids [T]: [T, K], as an embedding gives them."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        ...


@dataclass(frozen=True)
class ByRows:
    """Kept as it lies in a checkpoint and in a model that trains, whose memory it may share."""

    weight: Tensor
    """[N, K]"""

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply."""
        return F.linear(x, self.weight)

    def rows(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """The rows, cast."""
        return F.embedding(ids, self.weight).to(dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the weight."""
        return self.weight.nbytes


@dataclass(frozen=True)
class ByColumns:
    """Kept the other way round, which CPUs multiply with a few tokens faster."""

    weight: Tensor
    """[K, N]"""

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply."""
        if len(x) == 1 and self.weight.shape[1] >= WIDE:
            with SmallProducts():
                return x @ self.weight
        return x @ self.weight

    def rows(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """The rows, gathered."""
        return self.weight.index_select(1, ids).t().to(dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the weight."""
        return self.weight.nbytes


@dataclass(frozen=True)
class Int8:
    """Weights of 8 bits with a scale for each output; products in bf16, sums in fp32.

    Scales are numbers of bf16 from the start, so that rounding them loses nothing.
    """

    values: Tensor
    """int8 [N, K]"""
    scales: Tensor
    """bf16 [N]"""

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply x as it is in bf16."""
        inputs = x.to(torch.bfloat16)
        if self._packed(len(x)):
            product: Tensor = torch.ops.aten._weight_int8pack_mm(inputs, self.values, self.scales)
            return product.to(x.dtype)
        return (F.linear(inputs, self.values.to(torch.bfloat16)) * self.scales).to(x.dtype)

    def rows(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """The rows, turned into numbers of `dtype`."""
        return F.embedding(ids, self.values).to(dtype) * F.embedding(ids, self.scales[:, None]).to(dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of weights and scales."""
        return self.values.nbytes + self.scales.nbytes

    def _packed(self, tokens: int) -> bool:
        return (
            tokens <= PACKED_TOKENS
            and self.values.device.type == "cpu"
            and self.values.shape[1] % _PACKED_INPUTS == 0
        )
