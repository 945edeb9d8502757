"""Bytes that training holds for every parameter, from the layout table; activations are not in here.

Nor are the buckets in which gradients travel between copies of the model (`parallel/data_parallel.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from kitae.parallel.layout import ParameterLayout

LOCAL_BYTES: dict[str, dict[str, int]] = {
    "fp32": {"parameters": 4, "gradients": 4},
    "bf16": {"parameters": 2, "gradients": 4},
    "bf16-sr": {"parameters": 2, "gradients": 4},
    "autocast": {"parameters": 4, "gradients": 4},
}
"""By precision, for every element of a local parameter: gradients are summed in fp32."""

OWN_BYTES: dict[str, dict[str, int]] = {
    "fp32": {"optimizer": 8},
    "bf16": {"master": 4, "optimizer": 8},
    "bf16-sr": {"optimizer": 8},
    "autocast": {"optimizer": 8},
}
"""By precision, for every element that this rank updates: two fp32 moments; bf16 adds fp32 master weights."""


def count_parameters(layouts: Iterable[ParameterLayout]) -> int:
    """Elements of all local parameters, vocabulary padding and replicas included, as this rank holds them."""
    return sum(prod(layout.shape) for layout in layouts)


def state_bytes(
    layouts: Iterable[ParameterLayout], own: Iterable[ParameterLayout], precision: str
) -> dict[str, int]:
    """Bytes of one rank's parameters, gradients, optimizer state (and master weights) in `precision`.

    `layouts` of the local parameters, `own` of the rows that the rank updates (`parallel/shares.py`).
    """
    local, owned = count_parameters(layouts), count_parameters(own)
    return {
        **{kind: local * size for kind, size in LOCAL_BYTES[precision].items()},
        **{kind: owned * size for kind, size in OWN_BYTES[precision].items()},
    }
