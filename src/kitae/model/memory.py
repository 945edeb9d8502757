"""Bytes that training holds for every parameter, from the layout table; activations are not in here."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from kitae.parallel.layout import ParameterLayout

BYTES_A_PARAMETER: dict[str, dict[str, int]] = {
    "fp32": {"parameters": 4, "gradients": 4, "optimizer": 8},
    "bf16": {"parameters": 2, "master": 4, "gradients": 4, "optimizer": 8},
}
"""By precision: AdamW keeps two fp32 moments; bf16 adds fp32 master weights and sums gradients in fp32."""


def count_parameters(layouts: Iterable[ParameterLayout]) -> int:
    """Elements of all local parameters, vocabulary padding and replicas included, as this rank holds them."""
    return sum(prod(layout.shape) for layout in layouts)


def state_bytes(layouts: Iterable[ParameterLayout], precision: str) -> dict[str, int]:
    """Bytes of one rank's parameters, gradients, optimizer state (and master weights) in `precision`."""
    count = count_parameters(layouts)
    return {kind: count * size for kind, size in BYTES_A_PARAMETER[precision].items()}
