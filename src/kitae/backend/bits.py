"""Numbers looked at as other numbers of the same bits, also where torch's own view would leave the device."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import torch

Tensor = torch.Tensor


def reinterpreted(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The same bits as `dtype`, of the same size; on a device of torch-xla a copy, else a view."""
    if values.device.type != "xla":
        return values.view(dtype)
    cast: Tensor = _bitcast()(values, to=_NAMES[dtype])
    return cast


def halves_of(words: Tensor) -> Tensor:
    """The two signed 16-bit halves of int32 words [..., n], the lower ones first: [..., 2 n].

    As int16, and as int32 on a device of torch-xla, whose `>>` rounds negative numbers towards zero.
    """
    if words.device.type != "xla":
        return words.view(torch.int16)
    lower, upper = (torch.bitwise_right_shift(one, 16) for one in (words << 16, words))
    return torch.stack((lower, upper), -1).flatten(-2)


_NAMES = {torch.float32: "F32", torch.int32: "S32", torch.bfloat16: "BF16", torch.int16: "S16"}
"""What XLA calls them."""


@cache
def _bitcast() -> Any:
    """An operation of its own: torch-xla reads the values back for `Tensor.view(dtype)`."""
    builder, registry = (import_module(f"torch_xla.core.{one}") for one in ("xla_builder", "xla_op_registry"))
    return registry.register("kitae_bitcast", lambda values, to: values.bitcast(getattr(builder.Type, to)))
