"""Random numbers by counter: each depends only on what it is for, so any of them can be drawn at any time."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_UNIT = 2.0**-53


def stream_key(seed: int, purpose: str) -> int:
    """A number for all draws of one purpose."""
    digest = hashlib.blake2b(f"{seed}:{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def mixed(values: Bits) -> Bits:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014), in place."""
    values ^= values >> np.uint64(30)
    values *= _FIRST
    values ^= values >> np.uint64(27)
    values *= _SECOND
    values ^= values >> np.uint64(31)
    return values


def at(keys: Bits, counters: NDArray[np.integer]) -> Bits:
    """Independent bits for each key [N] at its counter [N]: splitmix64 begun at the key."""
    values = (counters.astype(np.uint64) + np.uint64(1)) * _STEP
    values += keys
    return mixed(values)


def uniform(bits: Bits) -> NDArray[np.float64]:
    """Numbers from 0 up to, not including, 1."""
    numbers: NDArray[np.float64] = (bits >> np.uint64(11)).astype(np.float64)
    return numbers * _UNIT


class Stream:
    """A sequence of draws, one after the other, for code that cannot draw them at once."""

    def __init__(self, key: int, number: int) -> None:
        self._state = _mixed_one((key + (number + 1) * int(_STEP)) & _MASK)

    def bits(self) -> int:
        """64 random bits."""
        self._state = (self._state + int(_STEP)) & _MASK
        return _mixed_one(self._state)

    def uniform(self) -> float:
        """A number from 0 up to, not including, 1."""
        return (self.bits() >> 11) * _UNIT

    def below(self, count: int) -> int:
        """A whole number from 0 up to, not including, `count`."""
        return self.bits() * count >> 64


_MASK = (1 << 64) - 1


def _mixed_one(value: int) -> int:
    value = (value ^ value >> 30) * int(_FIRST) & _MASK
    value = (value ^ value >> 27) * int(_SECOND) & _MASK
    return value ^ value >> 31
