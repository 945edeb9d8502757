"""Which documents are held out or sampled: decided by a keyed hash, so that equal ones fall alike."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def heldout_mask(digests: Sequence[bytes], *, fraction: float, seed: int) -> NDArray[np.bool_]:
    """[N] whether each document, given by the hash of its text, is held out; true for a share of `fraction`.

    It depends on the text and the seed only: not on order, file, batch or the other documents.
    """
    return draws_of(digests, seed=seed, purpose=b"kitae-heldout") < fraction


def draws_of(digests: Sequence[bytes], *, seed: int, purpose: bytes) -> NDArray[np.float64]:
    """[N] a number from 0 up to 1 for each document, uniform over documents; `purpose` has up to 16 bytes."""
    key = seed.to_bytes(8, "little")
    return np.array([_uniform(digest, key, purpose) for digest in digests], np.float64)


def first_by_draw(draws: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """[count] places of the documents with the smallest draws, ascending; of equal ones the earlier."""
    return np.sort(np.argsort(draws, kind="stable")[:count])


def _uniform(digest: bytes, key: bytes, purpose: bytes) -> float:
    drawn = hashlib.blake2b(digest, key=key, digest_size=8, person=purpose).digest()
    # 53 bits are exact in a float and stay below 1.
    return (int.from_bytes(drawn, "little") >> 11) / 2**53
