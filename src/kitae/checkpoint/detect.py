"""Which format the weights at a path have, told from names and first bytes; nothing is unpickled for it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kitae.checkpoint.coverage import listed
from kitae.checkpoint.manifest import FORMAT, MANIFEST_NAME
from kitae.checkpoint.nxd_folder import RANK_NAMES, is_nxd
from kitae.checkpoint.run_index import step_folders
from kitae.errors import WeightsError
from kitae.suggest import nearest

Kind = Literal["hf", "bin", "gguf", "state", "kitae", "nxd"]
TITLES: dict[Kind, str] = {
    "hf": "Hugging Face safetensors",
    "bin": "Hugging Face .bin",
    "gguf": "GGUF",
    "state": "a state dict in one file",
    "kitae": "a kitae checkpoint",
    "nxd": "neuronx-distributed (NxD) rank files",
}
_READ = (
    "Hugging Face folders, .gguf, .safetensors, .bin and .pt files, kitae runs and checkpoints, NxD folders"
)
_STATE_ENDINGS = (".safetensors", ".bin", ".pt", ".pth")
_OF_A_FOLDER = re.compile(
    r"config\.json|(model|pytorch_model)(-\d+-of-\d+)?\.(safetensors|bin)(\.index\.json)?"
)


@dataclass(frozen=True)
class Detected:
    """What lies at a path: its format, where exactly, and what was passed over for it."""

    kind: Kind
    path: Path
    notes: tuple[str, ...] = ()


def detect(path: Path) -> Detected:
    """The format of the weights at `path`; WeightsError says what was found instead of any."""
    if not path.exists():
        link = f" is a link to {path.readlink()}, which" if path.is_symlink() else ""
        raise WeightsError(f"{path}{link} does not exist{_similar(path)}")
    return _detect_folder(path) if path.is_dir() else _detect_file(path)


def _detect_file(path: Path) -> Detected:
    if not path.is_file():
        raise WeightsError(f"{path} is neither a file nor a folder; give one that holds weights")
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"GGUF" or path.suffix == ".gguf":
        return Detected("gguf", path)
    if path.name == MANIFEST_NAME or _OF_A_FOLDER.fullmatch(path.name):
        found = _detect_folder(path.parent)
        return Detected(found.kind, found.path, (f"{path.name} belongs to {path.parent}", *found.notes))
    if any(pattern.fullmatch(path.name) for pattern in RANK_NAMES):
        raise WeightsError(f"{path} is one rank's file of an NxD checkpoint; give the folder {path.parent}")
    if path.suffix in _STATE_ENDINGS:
        return Detected("state", path)
    raise WeightsError(f"{path} is no file of weights that kitae knows; it reads {_READ}")


def _detect_folder(folder: Path) -> Detected:
    found = [kind for kind, holds in _SIGNS if holds(folder)]
    if not found:
        raise WeightsError(_nothing_in(folder))
    kind, *others = found
    notes = tuple(f"{folder} also holds {TITLES[other]}, which is left alone" for other in others)
    return Detected(kind, _gguf_file(folder) if kind == "gguf" else folder, notes)


def _holds_kitae(folder: Path) -> bool:
    if re.fullmatch(r"step-\d+", folder.name) or any(map(step_folders, (folder, folder / "checkpoints"))):
        return True
    try:
        return bool(json.loads((folder / MANIFEST_NAME).read_bytes()).get("format") == FORMAT)
    except (OSError, ValueError, AttributeError):
        return False


def _holds(single: str, shards: str) -> Callable[[Path], bool]:
    def holds(folder: Path) -> bool:
        names = (folder / single, folder / f"{single}.index.json")
        return any(path.is_file() for path in names) or any(folder.glob(shards))

    return holds


_SIGNS: tuple[tuple[Kind, Callable[[Path], bool]], ...] = (
    ("kitae", _holds_kitae),
    ("hf", _holds("model.safetensors", "model-*-of-*.safetensors")),
    ("bin", _holds("pytorch_model.bin", "pytorch_model-*-of-*.bin")),
    ("nxd", is_nxd),
    ("gguf", lambda folder: any(folder.glob("*.gguf"))),
)
"""How a folder of each format is known, the preferred one first."""


def _gguf_file(folder: Path) -> Path:
    files = sorted(folder.glob("*.gguf"))
    if len(files) > 1:
        raise WeightsError(f"{folder} holds {listed([file.name for file in files])}; give one of these files")
    return files[0]


def _nothing_in(folder: Path) -> str:
    below = sorted(path for path in folder.iterdir() if path.is_dir() and any(h(path) for _, h in _SIGNS))
    states = sorted(path for path in folder.iterdir() if path.suffix in _STATE_ENDINGS)
    hint = ""
    if below or states:
        hint = f"; did you mean {' or '.join(map(str, [*below, *states][:3]))}?"
    return f"{folder} holds no weights that kitae knows{hint or f'; it reads {_READ}'}"


def _similar(path: Path) -> str:
    parent = path.absolute().parent
    others = [one.name for one in parent.iterdir() if one.name != path.name] if parent.is_dir() else []
    names = nearest(path.name, others)
    return f"; did you mean {' or '.join(str(path.parent / name) for name in names)}?" if names else ""
