"""Parameters that live where only whole tensors are read and written: on a device that collects graphs.

A slice of such a tensor is an operation, and would be a graph of its own. So a parameter is fetched as a
whole and cut on the host; what is read into it goes there as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from kitae.checkpoint.live import LiveSource
from kitae.parallel.layout import Box, ParameterLayout


class FetchedSource(LiveSource):
    """As `LiveSource`; one parameter at a time is in host memory."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], layouts: Sequence[ParameterLayout]) -> None:
        outlines = {name: _outline(one) for name, one in tensors.items()}
        super().__init__(outlines, layouts)
        self._tensors = tensors
        self._holders: dict[str, list[ParameterLayout]] = {}
        for layout in layouts:
            for name in dict.fromkeys(piece.tensor for piece in layout.pieces):
                self._holders.setdefault(name, []).append(layout)
        self._newest: tuple[object, LiveSource] | None = None

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        """See `LiveSource`."""
        return self._fetched(name).read(name, box)

    def view(self, name: str, box: Box) -> torch.Tensor | None:
        """In host memory, as it is now; later changes do not show."""
        return self._fetched(name).view(name, box)

    def _fetched(self, name: str) -> LiveSource:
        """What holds a full tensor; the last one is kept: a fused matrix has three of them."""
        layouts = self._holders[name]
        state = [(layout.name, self._tensors[layout.name]._version) for layout in layouts]
        if self._newest is None or self._newest[0] != state:
            found = {layout.name: self._tensors[layout.name].detach().cpu() for layout in layouts}
            self._newest = state, LiveSource(found, layouts)
        return self._newest[1]


@contextmanager
def to_be_sent(tensors: Mapping[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
    """Give host memory to fill in place of the tensors, which get what is in it afterwards."""
    filled = {name: torch.empty(one.shape, dtype=one.dtype) for name, one in tensors.items()}
    yield filled
    with torch.no_grad():
        for name, one in tensors.items():
            one.copy_(filled.pop(name))


def _outline(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
