"""The manifest of a checkpoint: which tensors lie in which boxes of which files, and how the run goes on.

`manifest.json`, version 1, is one JSON object:

    format, version   "kitae-checkpoint", 1
    digest            sha256 of the rest of the object, so that damage to it is noticed too
    run, sequence     identity of the run, and how many-th save of it this is (counted from 1)
    step              optimizer updates done
    recipe_hash       hash of the recipe that the run follows
    heldout_loss      nats per token, or null
    state             what the run needs besides tensors (consumed samples, tokens, ...)
    config            the model's Hugging Face config.json
    tensors           {kind: {name: {shape, dtype, boxes: [{start, shape, file, key}]}}}
    files             {name: {size_bytes, sha256}}

kind is `weights`, `exp_avg`, `exp_avg_sq` or any other word; names, shapes and dtypes are those of the full
tensors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kitae.checkpoint.coverage import Coverage
from kitae.checkpoint.pipe import TensorInfo
from kitae.checkpoint.safetensors_file import DTYPE_NAMES, DTYPES
from kitae.errors import WeightsError
from kitae.parallel.layout import Box
from kitae.storage.files import file_sha256

MANIFEST_NAME = "manifest.json"
FORMAT = "kitae-checkpoint"
VERSION = 1
WAY_OUT = "use an older checkpoint of the run, or remove this folder"


@dataclass(frozen=True)
class StoredBox:
    """A box of a full tensor, and the file and key that hold it."""

    box: Box
    file: str
    key: str


@dataclass(frozen=True)
class StoredTensor:
    """A full tensor and the boxes it is stored in."""

    info: TensorInfo
    boxes: tuple[StoredBox, ...]


@dataclass(frozen=True)
class StoredFile:
    """What a file must be."""

    size_bytes: int
    sha256: str


StoredTensors = Mapping[str, StoredTensor]


@dataclass(frozen=True)
class Manifest:
    """What stands in `manifest.json`; see the top of this file."""

    run: str
    sequence: int
    step: int
    recipe_hash: str
    heldout_loss: float | None
    state: Mapping[str, Any]
    config: Mapping[str, Any]
    tensors: Mapping[str, StoredTensors]
    files: Mapping[str, StoredFile]

    def joined(self, kind: str, tensors: StoredTensors, files: Mapping[str, StoredFile]) -> Manifest:
        """With what one more writer stored of a kind."""
        before = self.tensors.get(kind, {})
        merged = {name: replace(new, boxes=_boxes(before, name) + new.boxes) for name, new in tensors.items()}
        return replace(
            self, tensors={**self.tensors, kind: {**before, **merged}}, files={**self.files, **files}
        )

    def encode(self) -> bytes:
        """The file's content; WeightsError when `state` or `config` hold something that JSON cannot."""
        body = {
            "format": FORMAT,
            "version": VERSION,
            **{name: getattr(self, name) for name in _PLAIN},
            **encode_contents(self.tensors, self.files),
        }
        try:
            text = _canonical(body)
        except (TypeError, ValueError) as error:
            raise WeightsError(
                f"step {self.step} cannot be saved: its state or config is not plain JSON: {error}"
            ) from error
        return _canonical({"digest": _digest(text), **body}, indent=1).encode()


_PLAIN = {
    "run": str,
    "sequence": int,
    "step": int,
    "recipe_hash": str,
    "heldout_loss": object,
    "state": dict,
    "config": dict,
}


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a checkpoint folder; WeightsError when it is missing, damaged or too new."""
    path = folder / MANIFEST_NAME
    try:
        body = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise WeightsError(
            f"{folder} is not a complete checkpoint: it has no {MANIFEST_NAME}; {WAY_OUT}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is damaged: it is not JSON ({error}); {WAY_OUT}") from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise WeightsError(f"{path} is not the manifest of a kitae checkpoint; give the folder of one")
    _check_version(path, body.get("version"))
    if body.pop("digest", None) != _digest(_canonical(body)):
        raise WeightsError(f"{path} is damaged: its content does not have the digest it names; {WAY_OUT}")
    try:
        return _decode(body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WeightsError(f"{path} contradicts itself: {error}; {WAY_OUT}") from error


def verify_files(folder: Path, manifest: Manifest, *, hashes: bool) -> None:
    """Raise WeightsError unless every file has its size and, with `hashes`, its content."""
    for name, file in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise WeightsError(f"{path} is missing, though the manifest lists it; {WAY_OUT}")
        size = path.stat().st_size
        if size != file.size_bytes:
            kind = "truncated" if size < file.size_bytes else "too long"
            raise WeightsError(f"{path} is {kind}: {size:,} bytes instead of {file.size_bytes:,}; {WAY_OUT}")
    if hashes:
        for name, file in manifest.files.items():
            if file_sha256(folder / name) != file.sha256:
                raise WeightsError(
                    f"{folder / name} is damaged: its sha256 is not the one of the manifest; {WAY_OUT}"
                )


def _boxes(tensors: StoredTensors, name: str) -> tuple[StoredBox, ...]:
    return tensors[name].boxes if name in tensors else ()


def _check_version(path: Path, version: object) -> None:
    if not isinstance(version, int) or version < 1:
        raise WeightsError(f"{path} is damaged: its version is {version!r}; {WAY_OUT}")
    if version > VERSION:
        raise WeightsError(
            f"{path} was written by a newer kitae: format version {version}, this one reads up to {VERSION}; "
            "update kitae"
        )


def encode_contents(
    tensors: Mapping[str, StoredTensors], files: Mapping[str, StoredFile]
) -> dict[str, dict[str, Any]]:
    """The entries `tensors` and `files` as JSON values."""
    return {
        "tensors": {kind: _encode_tensors(entries) for kind, entries in tensors.items()},
        "files": {name: vars(file) for name, file in files.items()},
    }


def _encode_tensors(tensors: StoredTensors) -> dict[str, Any]:
    return {
        name: {
            "shape": tensor.info.shape,
            "dtype": DTYPE_NAMES[tensor.info.dtype],
            "boxes": [{**vars(part.box), "file": part.file, "key": part.key} for part in tensor.boxes],
        }
        for name, tensor in tensors.items()
    }


def _decode(body: dict[str, Any]) -> Manifest:
    for name, kind in _PLAIN.items():
        if not isinstance(body[name], kind):
            raise TypeError(f"{name} is {body[name]!r}")
    tensors, files = decode_contents(body)
    for name in files:
        if Path(name).name != name:
            raise ValueError(f"{name!r} is not a name of a file in the folder")
    for of_kind in tensors.values():
        require_whole(of_kind)
        for name, tensor in of_kind.items():
            for part in tensor.boxes:
                if part.file not in files:
                    raise ValueError(f"tensor {name} lies in {part.file!r}, which is not among the files")
    return Manifest(tensors=tensors, files=files, **{name: body[name] for name in _PLAIN})


def decode_contents(
    body: Mapping[str, Any],
) -> tuple[dict[str, StoredTensors], dict[str, StoredFile]]:
    """Tensors and files out of what `encode_contents` made."""
    files = {
        name: StoredFile(int(file["size_bytes"]), str(file["sha256"])) for name, file in body["files"].items()
    }
    tensors: dict[str, StoredTensors] = {
        kind: {name: _decode_tensor(entry) for name, entry in entries.items()}
        for kind, entries in body["tensors"].items()
    }
    return tensors, files


def require_whole(tensors: StoredTensors) -> None:
    """Raise WeightsError unless the boxes hold every element of every tensor exactly once."""
    coverage = Coverage({name: tensor.info.shape for name, tensor in tensors.items()})
    for name, tensor in tensors.items():
        for part in tensor.boxes:
            coverage.add(name, part.box, part.box.shape)
    coverage.check()


def _decode_tensor(entry: dict[str, Any]) -> StoredTensor:
    boxes = (
        StoredBox(Box(tuple(part["start"]), tuple(part["shape"])), str(part["file"]), str(part["key"]))
        for part in entry["boxes"]
    )
    return StoredTensor(TensorInfo(tuple(entry["shape"]), DTYPES[entry["dtype"]]), tuple(boxes))


def _canonical(body: Mapping[str, Any], indent: int | None = None) -> str:
    return json.dumps(body, indent=indent, allow_nan=False, ensure_ascii=False)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
