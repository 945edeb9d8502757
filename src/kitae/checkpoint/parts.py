"""The part of a save that one rank writes: its files, and a word in the folder that they are complete."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from kitae.backend.group import Group
from kitae.checkpoint.manifest import (
    Manifest,
    StoredFile,
    StoredTensor,
    StoredTensors,
    decode_contents,
    encode_contents,
    require_whole,
)
from kitae.checkpoint.native import NativeSink
from kitae.checkpoint.owners import Division
from kitae.checkpoint.pipe import TensorSource
from kitae.parallel.layout import Box

_BYTES_PER_BOX = 1024
"""Room for what headers and the manifest say about one box."""

Sources = Mapping[str, TensorSource]
"""By kind."""


@dataclass(frozen=True)
class Task:
    """What one rank writes of a save."""

    boxes: Mapping[str, Mapping[str, Sequence[Box]]]
    """By kind, the boxes of each tensor."""
    names: Sequence[str] | None
    """All tensors in the order of the model, those of others too; None: those of this rank."""
    mark: str
    """What the names of this rank's files have behind the kind."""

    def needed_bytes(self, sources: Sources) -> int:
        """Room that the part takes."""
        total = 0
        for kind, tensors in self.boxes.items():
            infos = sources[kind].tensors()  # once: a live source works it out
            for name, boxes in tensors.items():
                size = infos[name].dtype.itemsize
                total += sum(prod(box.shape) * size + _BYTES_PER_BOX for box in boxes)
        return total


def task_of(sources: Sources, control: Group, division: Division | None) -> Task:
    """Find this rank's task; without a division, which takes one rank, it is all that the sources have."""
    mark = f"-r{control.rank:05d}" if control.size > 1 else ""
    if division is None:
        assert control.size == 1, "several ranks need to know what each of them writes"
        return Task({kind: _whole(source) for kind, source in sources.items()}, None, mark)
    return Task(dict.fromkeys(sources, division.boxes[control.rank]), division.names, mark)


def _whole(source: TensorSource) -> dict[str, list[Box]]:
    return {name: [Box.whole(info.shape)] for name, info in source.tensors().items()}


@dataclass(frozen=True)
class Part:
    """What one rank has written."""

    tensors: Mapping[str, StoredTensors]
    """By kind."""
    files: Mapping[str, StoredFile]


def write_part(folder: Path, sources: Sources, task: Task) -> Part:
    """Write the files of a task, durably."""
    tensors: dict[str, StoredTensors] = {}
    files: dict[str, StoredFile] = {}
    for kind, boxes in task.boxes.items():
        source = sources[kind]
        infos = source.tensors()
        with NativeSink(folder, {name: infos[name] for name in boxes}, boxes, stem=kind + task.mark) as sink:
            for name in boxes:
                for box in boxes[name]:
                    # A name for the values would keep them alive while the next ones are read.
                    sink.write(name, box, source.read(name, box))
        tensors[kind] = sink.stored
        files |= sink.files
    return Part(tensors, files)


def announce(folder: Path, rank: int, part: Part) -> None:
    """Say in the folder that a rank's part is complete; others see all of the word or nothing."""
    path = _word(folder, rank)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(encode_contents(part.tensors, part.files)))
    temporary.replace(path)


def announced(folder: Path, ranks: Iterable[int]) -> bool:
    """Whether all of these ranks have announced their parts."""
    return all(_word(folder, rank).exists() for rank in ranks)


def collect(folder: Path, ranks: Iterable[int]) -> list[Part]:
    """Take the announced parts out of the folder."""
    parts = []
    for rank in ranks:
        path = _word(folder, rank)
        parts.append(Part(*decode_contents(json.loads(path.read_bytes()))))
        path.unlink()
    return parts


def joined(manifest: Manifest, parts: Sequence[Part], names: Sequence[str] | None) -> Manifest:
    """The manifest of all parts, tensors in the order of `names`; WeightsError unless they make a whole."""
    for part in parts:
        for kind, tensors in part.tensors.items():
            manifest = manifest.joined(kind, tensors, {})
        manifest = replace(manifest, files={**manifest.files, **part.files})
    if names is None:
        return manifest
    ordered = {kind: _ordered(tensors, names) for kind, tensors in manifest.tensors.items()}
    for tensors in ordered.values():
        require_whole(tensors)
    return replace(manifest, tensors=ordered)


def _ordered(tensors: StoredTensors, names: Sequence[str]) -> dict[str, StoredTensor]:
    return {name: tensors[name] for name in names if name in tensors}


def _word(folder: Path, rank: int) -> Path:
    return folder / f"part-r{rank:05d}.json"
