"""The order of training samples: a keyed permutation of their numbers for each epoch, O(1) anywhere.

A Feistel network permutes the numbers of 2k bits; cycle walking (Black and Rogaway, 2002) brings it down to
any number of samples: a value that falls outside is permuted again until it falls inside, fewer than 4
times on average. So the only state is how many samples were consumed.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from kitae.data.examples import Sample
from kitae.errors import DataError

ROUNDS = 8
_MASK = (1 << 64) - 1


class Cursor:
    """Sample numbers by how many were consumed before; each epoch holds each of them once."""

    def __init__(self, num_samples: int, seed: int) -> None:
        if num_samples < 1:
            raise DataError("there are no samples to train on")
        self.num_samples = num_samples
        self.seed = seed
        self._half_bits = max(1, -(-(num_samples - 1).bit_length() // 2))

    def sample(self, consumed: int) -> int:
        """The sample that follows after `consumed` samples."""
        epoch, place = divmod(consumed, self.num_samples)
        keys = _epoch_keys(self.seed, epoch)
        value = self._permute(place, keys)
        while value >= self.num_samples:
            value = self._permute(value, keys)
        return value

    def samples(self, start: int, count: int) -> list[int]:
        """The `count` samples that follow after `start` samples."""
        return [self.sample(consumed) for consumed in range(start, start + count)]

    def reads(self, start: int, count: int) -> list[Sample]:
        """The same, each with the epoch that it is read in."""
        numbers = self.samples(start, count)
        return [Sample(number, (start + n) // self.num_samples) for n, number in enumerate(numbers)]

    def _permute(self, value: int, keys: tuple[int, ...]) -> int:
        low_mask = (1 << self._half_bits) - 1
        left, right = value >> self._half_bits, value & low_mask
        for key in keys:
            left, right = right, left ^ (_mixed(right ^ key) & low_mask)
        return left << self._half_bits | right


@lru_cache(maxsize=8)
def _epoch_keys(seed: int, epoch: int) -> tuple[int, ...]:
    material = f"{seed}:data-order:{epoch}".encode()
    raw = hashlib.blake2b(material, digest_size=64).digest()
    return tuple(int.from_bytes(raw[8 * n : 8 * n + 8], "little") for n in range(ROUNDS))


def _mixed(value: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014): each input bit reaches each output bit."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
