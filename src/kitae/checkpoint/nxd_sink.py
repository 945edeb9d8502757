"""Writes a folder of neuronx-distributed (NxD) rank files as a stream: no rank's file is held in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from kitae.checkpoint.box_bytes import runs
from kitae.checkpoint.coverage import Coverage, intersect, within
from kitae.checkpoint.nxd_format import NxdFormat, rank_file
from kitae.checkpoint.nxd_layout import RankTable
from kitae.checkpoint.nxd_plan import RankLayouts, all_ranks, rank_tensors, ranks_bytes, require_same
from kitae.checkpoint.pipe import ScopedSink, TensorInfo
from kitae.checkpoint.replace import FolderReplacement, Making
from kitae.checkpoint.torch_pickle import (
    pickled_references,
    pickled_state,
    pickled_tensor,
    require_known_dtypes,
)
from kitae.checkpoint.torch_writer import TorchFile
from kitae.parallel.assembly import full_box
from kitae.parallel.layout import Box, Shape
from kitae.storage.disk import storage_errors

_CHUNK_BYTES = 16 << 20
"""How much of a tensor is cast and copied at once by each writer."""
_WRITERS = 4
_ROOM_FOR_SMALL_FILES = 1 << 20


class NxdSink(ScopedSink):
    """An NxD folder in the making: `close` makes it appear as a whole, an error leaves the old one.

    `model/dp_rank_00_tp_rank_TT_pp_rank_PP.pt` are plain torch.save files. With `xser`, a rank's tensors are
    single files in a folder beside it, as NxD's own save makes them and its load needs them. (What its
    converter's --save_xser writes is the plain kind beside an empty folder, which NxD does not load as xser.)
    Tensors are cast to the dtypes in `tensors`; `config` is kept beside them. An existing folder is replaced
    only when all that lies in it is an export of kitae; else WeightsError. With `making` it is that folder
    which is filled, but for the tensors that are there already.
    """

    def __init__(
        self,
        folder: Path,
        tensors: Mapping[str, TensorInfo],
        table: RankTable,
        format: NxdFormat,
        *,
        xser: bool = False,
        config: Mapping[str, Any] | None = None,
        making: Making | None = None,
    ) -> None:
        ranks = all_ranks(table, format)
        require_known_dtypes(tensors)
        require_same(tensors, ranks)
        self.folder = folder
        self._needed = ranks_bytes(tensors, ranks) + _ROOM_FOR_SMALL_FILES
        shapes = {name: info.shape for name, info in tensors.items()}
        self._coverage = Coverage(shapes)
        self._places: dict[str, list[list[_Place]]] = {name: [] for name in tensors}
        with storage_errors(folder, self._needed):
            self._making = making or FolderReplacement(folder, self._needed)
        self._threads = ThreadPoolExecutor(_WRITERS)
        try:
            with storage_errors(folder, self._needed):
                self._plan(ranks, tensors, _xser_file if xser else _plain_file)
                for name in self._making.done:
                    self._keep(name, shapes[name])
                self._write_config(config)
        except BaseException:
            self.abort()
            raise

    @property
    def temporary(self) -> Path:
        """The folder in the making: what else is put into it appears together with the tensors."""
        return self._making.temporary

    def write(self, name: str, box: Box, tensor: torch.Tensor) -> None:
        """Write one box of the full tensor `name` into the files of all ranks that hold some of it."""
        self._coverage.add(name, box, tuple(tensor.shape))

        def give(places: list[_Place]) -> None:
            for place in places:
                place.take(box, tensor.detach())

        with storage_errors(self.folder, self._needed):
            # Ranks side by side; what one rank holds goes into one file and is written by one thread.
            for _ in self._threads.map(give, self._places[name]):
                pass

    def paths(self, name: str) -> list[Path]:
        """Where a tensor is written to."""
        return [place.record.file.path for rank in self._places[name] for place in rank]

    def close(self) -> None:
        """Check that all was written, make it durable, and put it in its place."""
        try:
            self._coverage.check()
            with storage_errors(self.folder, self._needed):
                self._making.commit()
        except BaseException:
            self.abort()
            raise
        self._threads.shutdown()

    def abort(self) -> None:
        """Remove all that was written; the old folder, if any, stays."""
        self._threads.shutdown(cancel_futures=True)
        for rank in (rank for ranks in self._places.values() for rank in ranks):
            for place in rank:
                place.record.file.abort()
        self._making.discard()

    def _plan(self, ranks: RankLayouts, tensors: Mapping[str, TensorInfo], kind: _Kind) -> None:
        model = self.temporary / "model"
        model.mkdir(exist_ok=True)
        for (tp_rank, pp_rank), layouts in ranks.items():
            records = kind(model / rank_file(tp_rank, pp_rank), rank_tensors(layouts, tensors))
            held: dict[str, list[_Place]] = {}
            for layout in layouts:
                row = 0
                for piece in layout.pieces:
                    place = _Place(records[layout.name], full_box(piece), row)
                    held.setdefault(piece.tensor, []).append(place)
                    row += piece.local_shape[0]
            for name, places in held.items():
                self._places[name].append(places)

    def _keep(self, name: str, shape: Shape) -> None:
        self._coverage.add(name, Box.whole(shape), shape)
        for rank in self._places[name]:
            for place in rank:
                place.record.file.keep(prod(place.box.shape) * place.record.info.dtype.itemsize)

    def _write_config(self, config: Mapping[str, Any] | None) -> None:
        if config is not None:
            text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
            (self.temporary / "config.json").write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class _Record:
    """One tensor of a rank, as a storage of a file."""

    file: TorchFile
    storage: int
    info: TensorInfo


@dataclass(frozen=True)
class _Place:
    """Where a box of a full tensor goes: into a record, from `row` on."""

    record: _Record
    box: Box
    row: int

    def take(self, box: Box, tensor: torch.Tensor) -> None:
        """Write what of `tensor`, the values of `box`, belongs here, a few rows at a time."""
        shared = intersect(self.box, box)
        if shared is None:
            return
        part = tensor[within(shared, box)]
        first, *rest = (at - start for at, start in zip(shared.start, self.box.start, strict=True))
        row_bytes = part[:1].numel() * self.record.info.dtype.itemsize
        for rows in torch.split(part, max(1, _CHUNK_BYTES // row_bytes)):
            self._write(Box((self.row + first, *rest), tuple(rows.shape)), rows)
            first += len(rows)

    def _write(self, box: Box, tensor: torch.Tensor) -> None:
        info = self.record.info
        flat = tensor.to("cpu", info.dtype).contiguous().reshape(-1).view(torch.uint8)
        data = memoryview(flat.numpy().data)
        for first, count in runs(box, info.shape):
            size = count * info.dtype.itemsize
            self.record.file.write(self.record.storage, first * info.dtype.itemsize, data[:size])
            data = data[size:]


_Kind = Callable[[Path, Mapping[str, TensorInfo]], dict[str, _Record]]
"""`kind(path, tensors)`: the records of a rank's tensors, which are its file at `path` or lie beside it."""


def _plain_file(path: Path, tensors: Mapping[str, TensorInfo]) -> dict[str, _Record]:
    file = TorchFile(path, pickled_state(tensors), [info.nbytes for info in tensors.values()])
    return {name: _Record(file, index, info) for index, (name, info) in enumerate(tensors.items())}


def _xser_file(path: Path, tensors: Mapping[str, TensorInfo]) -> dict[str, _Record]:
    TorchFile(path, pickled_references(tensors), [])
    told = {
        index: {"dtype": info.dtype, "shape": torch.Size(info.shape), "expert_model_parallel": False}
        for index, info in enumerate(tensors.values())
    }
    torch.save(told, path.with_name(f"{path.name}.info.pt"))
    folder = path.with_name(f"{path.name}.tensors")
    folder.mkdir(exist_ok=True)
    return {
        name: _Record(TorchFile(folder / f"tensor_{index}.pt", pickled_tensor(info), [info.nbytes]), 0, info)
        for index, (name, info) in enumerate(tensors.items())
    }
