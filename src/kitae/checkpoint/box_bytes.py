"""The bytes of a box inside a file that holds the whole tensor: where they lie, and how they get there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from math import prod

from kitae.parallel.layout import Box, Shape

AT_ONCE_BYTES = 1 << 20
"""Measured on ext4 (Linux 6.18): 16 MiB in one call reach the page cache 3 to 7 times slower than 1 MiB."""


def runs(box: Box, shape: Shape) -> Iterator[tuple[int, int]]:
    """First element and length of each contiguous run of a box in a tensor of `shape`, in the box's order."""
    dim = len(shape)
    while dim > 0 and box.shape[dim - 1] == shape[dim - 1]:
        dim -= 1
    inner = prod(shape[dim:])
    if dim == 0:
        yield 0, inner
        return
    strides = [prod(shape[i + 1 :]) for i in range(dim)]
    last = box.start[dim - 1] * inner
    for index in product(
        *(range(s, s + n) for s, n in zip(box.start[: dim - 1], box.shape[: dim - 1], strict=True))
    ):
        yield (
            sum(i * stride for i, stride in zip(index, strides, strict=False)) + last,
            box.shape[dim - 1] * inner,
        )


def write_all(descriptor: int, data: memoryview, position: int) -> None:
    """Write all of `data` at `position`."""
    while data:
        written = os.pwrite(descriptor, data[:AT_ONCE_BYTES], position)
        data, position = data[written:], position + written
