"""Gradients of several parameters that travel together, and come back as fp32 sums over all replicas.

Own rows (ZeRO-1): every rank sends every other its part and adds what it gets in fp32, in the order of the
ranks. gloo's own reduce-scatter reduces everything everywhere, and bf16 in bf16. Time against it
(interleaved, median of ratios, 2 cores of a Zen 5; 1, 16, 64 MiB of fp32 gradients a rank):
fp32 on 2 ranks 0.43, 0.60, 0.80, on 4 ranks 0.46, 0.53, 0.68; bf16 0.54, 0.65, 1.02 and 0.40, 0.53, 0.89.

All rows: in fp32 the transport's all-reduce, as the exchange above and an all-gather take 1.7, 1.5, 2.3
times as long on 2 ranks and 0.7, 1.2, 1.9 on 4. In bf16 those two all the same, for their fp32 sums (0.9,
1.2, 1.9 times as long, and 1.3, 1.0, 1.5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Protocol

import torch

from kitae.backend.group import Group
from kitae.parallel.layout import Shape
from kitae.parallel.shares import Shares, row_range, rows_each


class Exchange(Protocol):
    """One trip of a bucket; what is not put into it counts as zeros."""

    def put(self, name: str, gradient: torch.Tensor) -> None:
        """Copy the gradient [local shape] of a parameter into the bucket."""
        ...

    def start(self) -> None:
        """Send it off."""
        ...

    def receive(self) -> None:
        """Wait for what the others sent, and let go of what was sent."""
        ...

    def results(self) -> dict[str, torch.Tensor]:
        """Give the fp32 sums over the replicas by parameter name."""
        ...


class RowPlaces:
    """Where rows of local parameters stand in a buffer [D, W]: those of rank d of D in row d.

    Every parameter takes as much of W as the rank with most rows needs; what others do not fill is padding.
    """

    def __init__(self, shapes: Mapping[str, Shape], size: int) -> None:
        self._shapes, self._size = shapes, size
        self._starts: dict[str, int] = {}
        self.width = 0
        for name, (rows, *rest) in shapes.items():
            self._starts[name] = self.width
            self.width += rows_each(rows, size) * prod(rest)

    def cells(
        self, name: str, buffer: torch.Tensor, tensor: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Pair views of the buffer with the views of a local tensor that belong there."""
        count, *rest = self._shapes[name]
        each = rows_each(count, self._size)
        if not count:
            return
        full, left = divmod(count, each)
        rows, row, part = tensor.view(count, *rest), prod(rest), buffer[:, self._starts[name] :]
        yield (
            torch.unflatten(part[:full, : each * row], 1, (each, *rest)),
            torch.unflatten(rows[: full * each], 0, (full, each)),
        )
        if left:
            yield part[full, : left * row].view(left, *rest), rows[full * each :]

    def own(self, name: str, rank: int, row: torch.Tensor) -> torch.Tensor:
        """View a parameter's rows of rank `rank` in its row [W] of the buffer."""
        count, *rest = self._shapes[name]
        rows = row_range(count, self._size, rank)
        shape = (rows.stop - rows.start, *rest)
        return row[self._starts[name] :][: prod(shape)].view(shape)


class ScatterRows:
    """Leaves each rank the sums of its own rows."""

    def __init__(
        self, shapes: Mapping[str, Shape], group: Group, wire_dtype: torch.dtype, device: torch.device
    ) -> None:
        self._shapes, self._group, self._wire_dtype = shapes, group, wire_dtype
        self._places = RowPlaces(shapes, group.size)
        self._sent = torch.zeros(group.size, self._places.width, dtype=wire_dtype, device=device)

    def put(self, name: str, gradient: torch.Tensor) -> None:
        """Copy each rank's rows of a gradient to its place."""
        for cell, rows in self._places.cells(name, self._sent, gradient):
            cell.copy_(rows)

    def start(self) -> None:
        """Send every rank its rows."""
        self._received = torch.empty_like(self._sent)
        self._pending = self._group.start_all_to_all(self._received, self._sent)

    def receive(self) -> None:
        """Sum what came."""
        self._pending.wait()
        self._sums = sum_in_order(self._received)
        del self._sent, self._received

    def results(self) -> dict[str, torch.Tensor]:
        """Views [own rows, ...] of one tensor."""
        return {name: self._places.own(name, self._group.rank, self._sums) for name in self._shapes}


class ScatterSums(ScatterRows):
    """As its base, for fp32 and a transport that is best left to sum on the way."""

    def start(self) -> None:
        """Send every rank its rows."""
        self._sums = self._sent.new_empty(self._places.width)
        self._pending = self._group.start_reduce_scatter(self._sums, self._sent.view(-1))

    def receive(self) -> None:
        """Wait for the sums."""
        self._pending.wait()
        del self._sent


class ReturnRows(ScatterRows):
    """Leaves each rank all sums, which travel in the dtype of the wire both ways."""

    def receive(self) -> None:
        """Send on the sums of the own rows."""
        super().receive()
        sums = self._sums.to(self._wire_dtype)
        del self._sums
        self._whole = sums.new_empty(self._group.size, len(sums))
        self._pending = self._group.start_all_gather(self._whole.view(-1), sums)

    def results(self) -> dict[str, torch.Tensor]:
        """Tensors of the local shapes."""
        self._pending.wait()
        return {name: self._local(name, shape) for name, shape in self._shapes.items()}

    def _local(self, name: str, shape: Shape) -> torch.Tensor:
        local = torch.empty(shape, device=self._whole.device)
        for cell, rows in self._places.cells(name, self._whole, local):
            rows.copy_(cell)
        return local


class ReduceAll:
    """Leaves each rank all sums, by the transport's own all-reduce in fp32."""

    def __init__(
        self, shapes: Mapping[str, Shape], group: Group, wire_dtype: torch.dtype, device: torch.device
    ) -> None:
        self._group = group
        self._flat = torch.zeros(sum(map(prod, shapes.values())), dtype=wire_dtype, device=device)
        parts = torch.split(self._flat, [prod(shape) for shape in shapes.values()])
        self._views = {
            name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)
        }

    def put(self, name: str, gradient: torch.Tensor) -> None:
        """Copy a gradient to its place."""
        view = self._views[name]
        view.copy_(gradient.view(view.shape))

    def start(self) -> None:
        """Sum in place."""
        self._pending = self._group.start_all_reduce(self._flat)

    def receive(self) -> None:
        """Wait for the sums."""
        self._pending.wait()

    def results(self) -> dict[str, torch.Tensor]:
        """Views [local shape] of one tensor."""
        return self._views


class GatherRows:
    """Brings every rank's rows of some local tensors of one dtype into those of all ranks; starts at once.

    `rows` are this rank's, by name; of any dtype.
    """

    def __init__(
        self, tensors: Mapping[str, torch.Tensor], rows: Mapping[str, torch.Tensor], shares: Shares
    ) -> None:
        group, (first, *_) = shares.group, tensors.values()
        self._tensors = tensors
        self._places = RowPlaces({name: shares.shapes[name] for name in tensors}, group.size)
        own = torch.zeros(self._places.width, dtype=first.dtype, device=first.device)
        for name in tensors:
            place = self._places.own(name, group.rank, own)
            place.copy_(rows[name].view(place.shape))
        self._whole = own.new_empty(group.size, len(own))
        self._pending = group.start_all_gather(self._whole.view(-1), own)

    def receive(self) -> None:
        """Wait for the others' rows and copy them."""
        self._pending.wait()
        for name, tensor in self._tensors.items():
            for cell, rows in self._places.cells(name, self._whole, tensor):
                rows.copy_(cell)


def sum_in_order(parts: torch.Tensor) -> torch.Tensor:
    """Sum of parts [D, W] in fp32, [W]: one after the other, so that its bits are always the same."""
    total = parts[0].to(torch.float32, copy=True)
    for part in parts[1:]:
        total.add_(part)
    return total
