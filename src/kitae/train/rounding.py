"""Stochastic rounding to bf16 with random bits that depend on nothing but seed, step, tensor and element.

A value between two bf16 numbers becomes the one farther from zero with the probability of its place between
them, so the mean of many small updates is kept although each is smaller than the spacing of bf16 numbers
(Gupta et al., 2015). The bits are a hash of the element's place in the full tensor, never of rank or order,
so every topology rounds alike. This is the reference; on Trainium the hardware rounds so by itself.

The hash: every row and every pair of columns gets 32 bits from splitmix64 (Steele et al., 2014) over a key of
seed, step and tensor; lowbias32 (Wellons, 2018) mixes both into 32 bits, 16 for each of the two columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from kitae.backend.bits import halves_of, reinterpreted
from kitae.parallel.assembly import pieces_of
from kitae.parallel.layout import Box, ParameterLayout, Shape

_CPU_BLOCK, _DEVICE_BLOCK = 1 << 18, 1 << 26
"""Elements rounded at a time: on a CPU, what stays in the cache of a core; elsewhere, what fills a device."""


class Rounding(Protocol):
    """How updated fp32 values of one update become bf16 ones."""

    def round_into(self, target: torch.Tensor, values: torch.Tensor, layout: ParameterLayout) -> None:
        """Round fp32 values into a contiguous bf16 tensor, both laid out as `layout` says; padding stays."""
        ...


class ByHardware:
    """A Trainium rounds by chance whatever becomes bf16, with NEURON_RT_STOCHASTIC_ROUNDING_EN=1."""

    def round_into(self, target: torch.Tensor, values: torch.Tensor, layout: ParameterLayout) -> None:
        """See `Rounding`."""
        target.copy_(values)


@dataclass(frozen=True)
class RoundingKey:
    """What the random bits of one update depend on besides tensor and element."""

    seed: int
    step: int
    """Number of the update, from 1."""

    def of(self, tensor: str) -> tuple[int, int]:
        """Two signed 64-bit numbers for a full tensor: for its rows and for its columns."""
        digest = hashlib.sha256(repr((self.seed, "rounding", self.step, tensor)).encode()).digest()
        first, second = (int.from_bytes(digest[at : at + 8], "little", signed=True) for at in (0, 8))
        return first, second

    def round_into(self, target: torch.Tensor, values: torch.Tensor, layout: ParameterLayout) -> None:
        """See `Rounding`; `train.rounding.round_into` does it."""
        round_into(target, values, layout, self)


@dataclass(frozen=True)
class KeysThere:
    """The numbers of a `RoundingKey` on a device, so that they are no part of a graph; rounds the same."""

    numbers: torch.Tensor
    """int64 [tensors, 2]."""
    places: Mapping[str, int]
    """Of each full tensor among them."""

    @classmethod
    def of_all(cls, key: RoundingKey, tensors: Iterable[str], device: torch.device) -> KeysThere:
        """The keys of these full tensors."""
        names = sorted(set(tensors))
        numbers = torch.tensor([key.of(name) for name in names], dtype=torch.int64)
        return cls(numbers.to(device), {name: place for place, name in enumerate(names)})

    def of(self, tensor: str) -> tuple[torch.Tensor, torch.Tensor]:
        """See `RoundingKey.of`."""
        own = self.numbers[self.places[tensor]]
        return own[0], own[1]

    def round_into(self, target: torch.Tensor, values: torch.Tensor, layout: ParameterLayout) -> None:
        """See `Rounding`."""
        round_into(target, values, layout, self)


Keys = RoundingKey | KeysThere


def stochastic_round(values: torch.Tensor, random16: torch.Tensor) -> torch.Tensor:
    """Round fp32 values to bf16, each with the low 16 bits of an integer tensor of the same shape.

    The bits are added below the last one that stays, and the rest is cut off. What bf16 can represent stays
    as it is, so do infinities and NaN; a value and its negative round alike.
    """
    bits = random16.to(torch.int32, copy=True).bitwise_and_(0xFFFF).add_(reinterpreted(values, torch.int32))
    rounded = reinterpreted(bits.bitwise_and_(-0x10000), torch.float32)
    # Added bits may turn a NaN into a number: 0 * NaN turns it back. Clamped, because 0 * inf is NaN too.
    return rounded.add_(values.clamp(-1, 1), alpha=0).to(torch.bfloat16)


def keyed_bits(key: Keys, tensor: str, full_shape: Shape, box: Box, device: torch.device) -> torch.Tensor:
    """16 random bits, as int16, for each element of a box of a full tensor: of `box.shape`."""
    rows, pairs = _keys(key, tensor, full_shape, box, device)
    return _bits(rows, pairs, box).reshape(box.shape)


@torch.no_grad()
def round_into(target: torch.Tensor, values: torch.Tensor, layout: ParameterLayout, key: Keys) -> None:
    """Round fp32 values into a contiguous bf16 tensor, both laid out as `layout` says; padding stays.

    Works in blocks, so that little memory is needed. On one core it takes 1.1 to 1.7 ns an element, about
    three times as long as the fused AdamW update (0.5 ns).
    """
    assert layout.concat_dim == 0
    assert target.is_contiguous()
    shapes = {piece.tensor: piece.full_shape for piece in layout.pieces}
    for (tensor, box, old), (_, _, new) in zip(
        pieces_of(layout, target), pieces_of(layout, values), strict=True
    ):
        rows, pairs = _keys(key, tensor, shapes[tensor], box, target.device)
        width = box.shape[-1]
        for block in _blocks(rows.numel(), width, target.device):
            rounded = stochastic_round(new.view(-1, width)[block], _bits(rows[block], pairs, box))
            old.view(-1, width)[block] = rounded


def _blocks(rows: int, width: int, device: torch.device) -> Iterator[slice]:
    each = max(1, (_CPU_BLOCK if device.type == "cpu" else _DEVICE_BLOCK) // width)
    return (slice(start, start + each) for start in range(0, rows, each))


def _keys(
    key: Keys, tensor: str, full_shape: Shape, box: Box, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """32 random bits, as int32, for each row of a box [rows, 1], and for each pair of columns [1, pairs]."""
    row_key, column_key = key.of(tensor)
    row = torch.zeros((), dtype=torch.int64, device=device)
    for start, held, size in zip(box.start[:-1], box.shape[:-1], full_shape[:-1], strict=True):
        row = row.unsqueeze(-1) * size + torch.arange(start, start + held, device=device)
    start, stop = box.start[-1], box.start[-1] + box.shape[-1]
    pair = torch.arange(start // 2, (stop + 1) // 2, device=device)
    return _mixed64(row.view(-1, 1), row_key), _mixed64(pair.view(1, -1), column_key)


def _bits(rows: torch.Tensor, pairs: torch.Tensor, box: Box) -> torch.Tensor:
    """16 bits, as int16, for each element of some rows of a box: [rows, columns]."""
    first = box.start[-1] % 2
    return halves_of(_mix32(rows ^ pairs))[:, first : first + box.shape[-1]]


def _mixed64(numbers: torch.Tensor, key: int | torch.Tensor) -> torch.Tensor:
    """Hash int64 numbers under a key to 32 bits, as int32: splitmix64, of which the upper half is given."""
    mixed = numbers * _signed64(0x9E3779B97F4A7C15) + key
    # shifts of signed numbers copy the sign, which the masks take away
    mixed ^= _shifted(mixed, 30) & 0x3FFFFFFFF
    mixed *= _signed64(0xBF58476D1CE4E5B9)
    mixed ^= _shifted(mixed, 27) & 0x1FFFFFFFFF
    mixed *= _signed64(0x94D049BB133111EB)
    mixed ^= _shifted(mixed, 31) & 0x1FFFFFFFF
    return _shifted(mixed, 32).to(torch.int32)


def _shifted(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    return torch.bitwise_right_shift(numbers, bits)  # torch-xla's `>>` rounds towards zero


def _signed64(number: int) -> int:
    return number - (1 << 64)


def _mix32(words: torch.Tensor) -> torch.Tensor:
    """Mix each int32 in place so that every bit of it changes every bit half of the time: lowbias32."""
    words = _fold(words, 16).mul_(0x7FEB352D)
    words = _fold(words, 15).mul_(0x846CA68B - (1 << 32))
    return _fold(words, 16)


def _fold(words: torch.Tensor, bits: int) -> torch.Tensor:
    return words.bitwise_xor_(_shifted(words, bits).bitwise_and_((1 << 32 - bits) - 1))
