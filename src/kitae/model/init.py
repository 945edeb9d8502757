"""Random weights for a new model, drawn for each full tensor on its own.

The generator of a tensor is keyed by the seed and the tensor's name, and always draws the whole tensor, so
every tensor-parallel cut and every order of filling starts from the same weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import partial

import torch

from kitae.parallel.assembly import assemble
from kitae.parallel.layout import Box, Initial, ParameterLayout, Shape


def keyed_generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A CPU generator whose stream depends on nothing but `seed` and `purpose`."""
    digest = hashlib.sha256(repr((seed, *purpose)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def full_tensor(name: str, shape: Shape, initial: Initial, seed: int, std: float) -> torch.Tensor:
    """The starting values of a full tensor, fp32."""
    if initial == "normal":
        return torch.empty(shape).normal_(0.0, std, generator=keyed_generator(seed, "init", name))
    return torch.full(shape, {"ones": 1.0, "zeros": 0.0}[initial])


@torch.no_grad()
def initialise(
    parameters: Mapping[str, torch.Tensor], layouts: Iterable[ParameterLayout], *, seed: int, std: float
) -> None:
    """Fill local parameters: weights normal with `std`, norms one, biases zero; one parameter at a time."""
    for layout in layouts:
        read = partial(
            _read, {piece.tensor: piece.full_shape for piece in layout.pieces}, layout.initial, seed, std
        )
        parameters[layout.name].copy_(assemble(layout, read, torch.float32))


def _read(
    shapes: Mapping[str, Shape], initial: Initial, seed: int, std: float, name: str, box: Box
) -> torch.Tensor:
    return full_tensor(name, shapes[name], initial, seed, std)[box.slices()]
