"""kitae's own checkpoints: a folder of safetensors files that hold boxes of full tensors, and a manifest.

Any number of writers, each with whatever boxes it holds, can fill one; a reader asks for any box and gets
it put together from those that it meets. There is no pickle. A tensor stored whole has its own name as key,
so the files of a checkpoint that one process wrote can be opened with the safetensors package alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from kitae.checkpoint.coverage import fits, intersect, within
from kitae.checkpoint.hashed_file import HashedFile
from kitae.checkpoint.manifest import (
    WAY_OUT,
    Manifest,
    StoredBox,
    StoredFile,
    StoredTensor,
    read_manifest,
)
from kitae.checkpoint.native_plan import PlannedFile, in_order, plan_files
from kitae.checkpoint.pipe import ScopedSink, TensorInfo
from kitae.checkpoint.safetensors_file import SafetensorsFile
from kitae.errors import WeightsError
from kitae.parallel.layout import Box

MAX_FILE_BYTES = 4 << 30


class NativeSource:
    """The tensors of one kind in a checkpoint folder; file contents are read when a box is asked for."""

    def __init__(self, folder: Path, kind: str = "weights", manifest: Manifest | None = None) -> None:
        manifest = manifest or read_manifest(folder)
        if kind not in manifest.tensors:
            held = ", ".join(manifest.tensors) or "nothing"
            raise WeightsError(f"{folder} holds no tensors of kind {kind!r}; it holds {held}")
        self._folder = folder
        self._stored = manifest.tensors[kind]
        self._files: dict[str, SafetensorsFile] = {}

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor's shape and dtype."""
        return {name: stored.info for name, stored in self._stored.items()}

    def read(self, name: str, box: Box | None = None) -> torch.Tensor:
        """The box of a tensor (all of it by default), in memory of its own."""
        if name not in self._stored:
            raise WeightsError(f"{self._folder} holds no tensor {name}; it holds {len(self._stored)} others")
        stored = self._stored[name]
        wanted = box or Box.whole(stored.info.shape)
        if not fits(wanted, stored.info.shape):
            raise WeightsError(
                f"tensor {name} of shape {stored.info.shape} has no part at {wanted.start} of {wanted.shape}"
            )
        result = torch.empty(wanted.shape, dtype=stored.info.dtype)
        for part in stored.boxes:
            shared = intersect(part.box, wanted)
            if shared is not None:
                result[within(shared, wanted)] = self._part(part, stored.info)[within(shared, part.box)]
        return result

    def _part(self, part: StoredBox, info: TensorInfo) -> torch.Tensor:
        """A view of the file: reading a corner of it reads only that corner."""
        file = self._open(part.file)
        if file.tensors.get(part.key) != TensorInfo(part.box.shape, info.dtype):
            raise WeightsError(f"{file.path} does not hold {part.key} as the manifest says; {WAY_OUT}")
        return file.read(part.key, Box.whole(part.box.shape))

    def _open(self, name: str) -> SafetensorsFile:
        if name not in self._files:
            if not (self._folder / name).is_file():
                raise WeightsError(f"{self._folder / name} is missing; {WAY_OUT}")
            self._files[name] = SafetensorsFile(self._folder / name)
        return self._files[name]


class NativeSink(ScopedSink):
    """Writes boxes of full tensors into safetensors files in a folder, as they come, without holding any.

    A file's header stands before its data, so `tensors` (and `boxes`, whole tensors by default) must be
    known at the start, and the boxes of one dtype must be written in that order, each at once or in runs of
    rows. Files are named `<stem>-<dtype>-<number>`; each has one dtype and at most `max_file_bytes`, unless
    one box is larger. `close` raises WeightsError when something was not written; afterwards `stored` and
    `files` are what a manifest needs to know.
    """

    def __init__(
        self,
        folder: Path,
        tensors: Mapping[str, TensorInfo],
        boxes: Mapping[str, Sequence[Box]] | None = None,
        *,
        stem: str = "weights",
        max_file_bytes: int = MAX_FILE_BYTES,
    ) -> None:
        slots = [
            (n, box) for n, info in tensors.items() for box in (boxes or {}).get(n, [Box.whole(info.shape)])
        ]
        self.files: dict[str, StoredFile] = {}
        self._folder = folder
        self._tensors = tensors
        planned = plan_files(slots, tensors, stem, max_file_bytes)
        self._due = {
            dtype: deque(_Due(file, *slot) for file, slot in in_order(files))
            for dtype, files in planned.items()
        }
        self._open: dict[torch.dtype, tuple[PlannedFile, HashedFile]] = {}
        self._parts: dict[str, list[StoredBox]] = {name: [] for name in tensors}

    @property
    def stored(self) -> dict[str, StoredTensor]:
        """Where each tensor was written to."""
        return {name: StoredTensor(self._tensors[name], tuple(parts)) for name, parts in self._parts.items()}

    def write(self, name: str, box: Box, tensor: torch.Tensor) -> None:
        """Append one box, or the next rows of one; a contiguous tensor on the CPU is not copied."""
        info = self._tensors[name]
        due = self._next(name, box)
        if tuple(tensor.shape) != box.shape or tensor.dtype != info.dtype:
            given = f"{tuple(tensor.shape)} {tensor.dtype}"
            raise WeightsError(f"tensor {name}: got {given} where {box.shape} {info.dtype} was announced")
        self._file(due.file).write(_bytes(tensor))
        self._wrote(due, box)

    def keep(self, name: str) -> None:
        """Take over a whole tensor, the next one, which another process has written: it is only read."""
        box = Box.whole(self._tensors[name].shape)
        due = self._next(name, box)
        self._file(due.file).keep(self._tensors[name].nbytes)
        self._wrote(due, box)

    def paths(self, name: str) -> list[Path]:
        """Where a tensor was written to."""
        return [self._folder / part.file for part in self._parts[name]]

    def close(self) -> None:
        """Finish and sync the files; WeightsError when something was not written."""
        missing = [due.name for queue in self._due.values() for due in queue]
        if missing:
            self.abort()
            raise WeightsError(
                f"{len(missing)} boxes were announced but not written, the first of {missing[0]}"
            )
        for dtype in list(self._open):
            self._finish(dtype)

    def abort(self) -> None:
        """Close the files as they are."""
        for _, file in self._open.values():
            file.discard()

    def _next(self, name: str, box: Box) -> _Due:
        """What is due, if that is this box or begins with it."""
        queue = self._due.get(self._tensors[name].dtype)
        if not queue or queue[0].name != name or not queue[0].takes(box):
            due = f"{queue[0].name} at {queue[0].rest.start}" if queue else "nothing more"
            raise WeightsError(f"tensor {name} at {box.start} was given out of order: due is {due}")
        return queue[0]

    def _wrote(self, due: _Due, box: Box) -> None:
        if box != due.rest:
            due.rows += box.shape[0]
            return
        self._due[due.file.dtype].popleft()
        key = due.file.key(due.name, due.box)
        self._parts[due.name].append(StoredBox(due.box, due.file.name, key))

    def _file(self, planned: PlannedFile) -> HashedFile:
        current = self._open.get(planned.dtype)
        if current is not None and current[0] is planned:
            return current[1]
        self._finish(planned.dtype)
        file = HashedFile(self._folder / planned.name)
        self._open[planned.dtype] = (planned, file)
        file.write(memoryview(planned.header()))
        return file

    def _finish(self, dtype: torch.dtype) -> None:
        if dtype in self._open:
            planned, file = self._open.pop(dtype)
            self.files[planned.name] = file.close()


@dataclass
class _Due:
    """A box that is to be written."""

    file: PlannedFile
    name: str
    box: Box
    rows: int = 0
    """So many are written."""

    @property
    def rest(self) -> Box:
        """What is still missing."""
        first, size = self.box.start[:1], self.box.shape[:1]
        return Box(
            (*(start + self.rows for start in first), *self.box.start[1:]),
            (*(rows - self.rows for rows in size), *self.box.shape[1:]),
        )

    def takes(self, box: Box) -> bool:
        """Whether `box` is what is missing, or the first rows of it."""
        rest = self.rest
        runs = box.start == rest.start and box.shape[1:] == rest.shape[1:]
        return box == rest or (runs and 0 < box.shape[0] < rest.shape[0])


def _bytes(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
