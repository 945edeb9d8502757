"""Which documents are held out: decided by a keyed hash, so that equal documents fall on one side."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def heldout_mask(digests: Sequence[bytes], *, fraction: float, seed: int) -> NDArray[np.bool_]:
    """[N] whether each document, given by the hash of its text, is held out; true for a share of `fraction`.

    It depends on the text and the seed only: not on order, file, batch or the other documents.
    """
    key = seed.to_bytes(8, "little")
    return np.array([_uniform(digest, key) < fraction for digest in digests], np.bool_)


def _uniform(digest: bytes, key: bytes) -> float:
    drawn = hashlib.blake2b(digest, key=key, digest_size=8, person=b"kitae-heldout").digest()
    # 53 bits are exact in a float and stay below 1.
    return (int.from_bytes(drawn, "little") >> 11) / 2**53
