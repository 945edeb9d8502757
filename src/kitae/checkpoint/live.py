"""The parameters of a live model as a source and a sink of full tensors, as their layouts say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import torch

from kitae.checkpoint.coverage import Coverage, intersect, listed, within
from kitae.checkpoint.pipe import ScopedSink, TensorInfo
from kitae.errors import WeightsError
from kitae.parallel.assembly import pieces_of
from kitae.parallel.layout import Box, ParameterLayout, Shape

Held = dict[str, list[tuple[Box, torch.Tensor]]]
"""Per full tensor, the boxes that live here and the memory they live in."""


class LiveSource:
    """Full tensors out of local ones; what this rank does not hold cannot be read from it."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], layouts: Sequence[ParameterLayout]) -> None:
        self._held = _held(tensors, layouts)
        self._shapes = _full_shapes(layouts)

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every full tensor of which something lives here."""
        return _infos(self._held, self._shapes)

    def boxes(self, name: str) -> list[Box]:
        """The boxes of a full tensor that live here."""
        return _boxes(self._held, name)

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        """The box of a tensor on the CPU; it may share the parameter's memory, so never write to it."""
        wanted = box or Box.whole(self._shapes[name])
        view = self.view(name, wanted)
        return _gathered(name, wanted, self._held[name]) if view is None else view.cpu()

    def view(self, name: str, box: Box) -> torch.Tensor | None:
        """The memory that holds the box, wherever it is; None when no single parameter holds all of it."""
        for held, values in self._held[name]:
            if intersect(held, box) == box:
                return values[within(box, held)]
        return None


class LiveSink(ScopedSink):
    """Fills local tensors from boxes of full ones, cast to their dtype; `close` checks that none is left."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], layouts: Sequence[ParameterLayout]) -> None:
        self._held = _held(tensors, layouts)
        self._shapes = _full_shapes(layouts)
        self._coverage = Coverage(self._shapes)
        self._missing = {n: sum(values.numel() for _, values in parts) for n, parts in self._held.items()}
        _clear_padding(tensors, layouts)

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every full tensor of which something lives here, in the dtype that it has here."""
        return _infos(self._held, self._shapes)

    def boxes(self, name: str) -> list[Box]:
        """The boxes of a full tensor that live here: what has to be written."""
        return _boxes(self._held, name)

    def write(self, name: str, box: Box, tensor: torch.Tensor) -> None:
        """Copy what lives here of one box of the full tensor `name`."""
        self._coverage.add(name, box, tuple(tensor.shape))
        for held, values in self._held.get(name, ()):
            shared = intersect(held, box)
            if shared is not None:
                values[within(shared, held)].copy_(tensor[within(shared, box)])
                self._missing[name] -= prod(shared.shape)

    def close(self) -> None:
        """Raise WeightsError unless every element was written."""
        missing = [f"{name} ({count} values)" for name, count in self._missing.items() if count]
        if missing:
            raise WeightsError(f"{len(missing)} tensors of the model were not filled: {listed(missing)}")

    def abort(self) -> None:
        """Nothing to undo: the parameters hold what was written so far."""


def _infos(held: Held, shapes: Mapping[str, Shape]) -> dict[str, TensorInfo]:
    return {name: TensorInfo(shapes[name], parts[0][1].dtype) for name, parts in held.items()}


def _boxes(held: Held, name: str) -> list[Box]:
    """Each once, though two parameters may hold the same."""
    return list(dict.fromkeys(box for box, _ in held[name]))


def _held(tensors: Mapping[str, torch.Tensor], layouts: Sequence[ParameterLayout]) -> Held:
    held: Held = {}
    for layout in layouts:
        local = _local(tensors, layout)
        for name, box, values in pieces_of(layout, local):
            assert values.untyped_storage().data_ptr() == local.untyped_storage().data_ptr(), name
            held.setdefault(name, []).append((box, values))
    return held


def _local(tensors: Mapping[str, torch.Tensor], layout: ParameterLayout) -> torch.Tensor:
    if layout.name not in tensors:
        raise WeightsError(
            f"parameter {layout.name} of shape {layout.shape} is in the layout but not in the model"
        )
    local = tensors[layout.name].detach()
    if tuple(local.shape) != layout.shape:
        raise WeightsError(
            f"parameter {layout.name} has shape {tuple(local.shape)}, its layout says {layout.shape}"
        )
    return local


def _full_shapes(layouts: Sequence[ParameterLayout]) -> dict[str, Shape]:
    return {piece.tensor: piece.full_shape for layout in layouts for piece in layout.pieces}


def _clear_padding(tensors: Mapping[str, torch.Tensor], layouts: Sequence[ParameterLayout]) -> None:
    for layout in layouts:
        if sum(prod(piece.box.shape) for piece in layout.pieces) < prod(layout.shape):
            tensors[layout.name].detach().zero_()


def _gathered(name: str, wanted: Box, parts: list[tuple[Box, torch.Tensor]]) -> torch.Tensor:
    result = torch.empty(wanted.shape, dtype=parts[0][1].dtype)
    found = 0
    for held, values in parts:
        shared = intersect(held, wanted)
        if shared is not None:
            result[within(shared, wanted)] = values[within(shared, held)].cpu()
            found += prod(shared.shape)
    if found < prod(wanted.shape):
        raise WeightsError(
            f"tensor {name}: {prod(wanted.shape) - found} of the values asked for live on other ranks"
        )
    return result
