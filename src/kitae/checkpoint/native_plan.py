"""Which boxes go into which safetensors file, known before the first byte is written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

import torch

from kitae.checkpoint.pipe import TensorInfo
from kitae.checkpoint.safetensors_file import DTYPE_NAMES
from kitae.parallel.layout import Box, Shape

Slot = tuple[str, Box]
"""A box of the full tensor of that name."""


@dataclass
class PlannedFile:
    """A file to be written: boxes of one dtype, one after the other.

    One dtype, because then the data of every box is aligned for it without gaps, which the format does not
    allow.
    """

    name: str
    dtype: torch.dtype
    slots: dict[Slot, Shape] = field(default_factory=dict)
    """In order; the value is the full tensor's shape."""

    data_bytes: int = 0

    def has_room(self, box: Box, max_file_bytes: int) -> bool:
        """Whether the box may still come in; a file takes at least one."""
        return not self.slots or self.data_bytes + self._bytes(box) <= max_file_bytes

    def add(self, name: str, box: Box, full_shape: Shape) -> None:
        """Put a box behind the others."""
        self.slots[name, box] = full_shape
        self.data_bytes += self._bytes(box)

    def key(self, name: str, box: Box) -> str:
        """What the box is called in the file: the tensor's own name when it is all of it."""
        if box == Box.whole(self.slots[name, box]):
            return name
        return f"{name}@{','.join(map(str, box.start))}+{','.join(map(str, box.shape))}"

    def header(self) -> bytes:
        """The header with its length before it, padded so that the data begins at a multiple of 8."""
        entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name, box in self.slots:
            begin, end = end, end + self._bytes(box)
            shown = {"dtype": DTYPE_NAMES[self.dtype], "shape": box.shape, "data_offsets": (begin, end)}
            entries[self.key(name, box)] = shown
        text = json.dumps(entries, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    def _bytes(self, box: Box) -> int:
        return prod(box.shape) * self.dtype.itemsize


def plan_files(
    slots: Iterable[Slot], tensors: Mapping[str, TensorInfo], stem: str, max_file_bytes: int
) -> dict[torch.dtype, list[PlannedFile]]:
    """The files of each dtype; a file is full when the next box would take its data over `max_file_bytes`."""
    files: dict[torch.dtype, list[PlannedFile]] = {}
    for name, box in slots:
        shape, dtype = tensors[name].shape, tensors[name].dtype
        of_dtype = files.setdefault(dtype, [])
        if not of_dtype or not of_dtype[-1].has_room(box, max_file_bytes):
            label = DTYPE_NAMES[dtype].lower()
            of_dtype.append(PlannedFile(f"{stem}-{label}-{len(of_dtype) + 1:05d}.safetensors", dtype))
        of_dtype[-1].add(name, box, shape)
    return files


def in_order(files: Iterable[PlannedFile]) -> Iterator[tuple[PlannedFile, Slot]]:
    """Every box with its file, in the order of writing."""
    return ((file, slot) for file in files for slot in file.slots)
