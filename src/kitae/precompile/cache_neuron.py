"""Neuron's persistent cache of torch-neuronx on torch-xla (Trn1), as it lies on a disk.

`<root>/neuronxcc-<version>/MODULE_<graph>+<flags>/` with model.hlo_module.pb (older: model.hlo.pb),
compile_flags.json (older: compile_flags.txt), and model.neff with an empty model.done after a success,
model.log after a failure, *.lock while it is compiled. (Neuron SDK, "Neuron Persistent Cache" and
"neuron_parallel_compile CLI"; the layout as optimum-neuron's cache module describes it.)
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from kitae.backend.stack import compile_cache
from kitae.precompile.entries import Entry, Lock, State, size_and_time
from kitae.precompile.lock_holders import Holders

KIND = "neuron"
DEFAULT_ROOT = "/var/tmp/neuron-compile-cache"
MODULE = re.compile(r"MODULE_[0-9A-Za-z]+(?:\+[0-9A-Za-z]+)?")
_VERSION = "neuronxcc-"
_GRAPHS = ("model.hlo_module.pb", "model.hlo.pb")
_FLAGS = ("compile_flags.json", "compile_flags.txt")
_ERROR = re.compile(r"\[[A-Z]{3,4}_?[A-Z]*\d+\]|\berror\b|\bERROR\b|Reason:|Killed|terminated abnormally")
_PREFIX = re.compile(
    r"^\s*Failed compilation with \[.*?\]:\s*|^\d{4}-\d\d-\d\dT[\d:.]+Z\s*(USER|ERROR|INFO)?\s*"
)


def root_of(environment: Mapping[str, str] = os.environ) -> str:
    """Where the cache is, a folder or an s3:// address; a flag of the compiler wins over the variable."""
    return compile_cache(environment) or DEFAULT_ROOT


def entries(root: Path) -> Iterator[Entry]:
    """What the cache has, by compiler and name."""
    holders = Holders(root)
    for version in sorted(root.glob(f"{_VERSION}*")):
        for folder in sorted(version.glob("MODULE_*")) if version.is_dir() else ():
            if folder.is_dir():
                yield read_entry(folder, holders)


def read_entry(folder: Path, holders: Holders | None = None) -> Entry:
    """The entry in a folder; `holders` judges its locks."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    size, modified = size_and_time(files)
    judge = holders or Holders(folder)
    found = (judge.lock(path, folder.name) for path in sorted(folder.glob("*.lock")))
    locks = tuple(lock for lock in found if lock is not None)
    state = _state(folder, locks)
    return Entry(
        cache=KIND,
        name=folder.name,
        path=folder,
        state=state,
        size_bytes=size,
        modified=modified or _time_of(folder),
        version=folder.parent.name,
        why=_failure(folder) if state == "failed" else "",
        locks=locks,
    )


def _state(folder: Path, locks: tuple[Lock, ...]) -> State:
    neff, log = folder / "model.neff", folder / "model.log"
    if (folder / "model.done").exists() and _size_of(neff) > 0:
        return "done"
    if any(lock.holder == "alive" for lock in locks):
        return "locked"
    if log.exists() and not neff.exists():
        return "failed"
    if neff.exists():
        return "half-written"
    return "locked" if locks else "empty"


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except OSError:  # not there, or gone meanwhile
        return 0


def _time_of(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _failure(folder: Path) -> str:
    try:
        text = (folder / "model.log").read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return first_error(text)


def first_error(text: str) -> str:
    """The line of a compiler's words that says what went wrong: the first that looks so, else the first."""
    lines = [cut for line in text.splitlines() if (cut := _PREFIX.sub("", _PREFIX.sub("", line)).strip())]
    return next((line for line in lines if _ERROR.search(line)), lines[0] if lines else "")[:200]


def graph_file(folder: Path) -> Path | None:
    """The graph of an entry, as an HloModuleProto; None when it is not there."""
    return next((folder / name for name in _GRAPHS if (folder / name).is_file()), None)


def flags_of(folder: Path) -> tuple[str, ...] | None:
    """The compiler's flags of an entry; None when they are not there or cannot be read."""
    for name in _FLAGS:
        try:
            text = (folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        return _flags(text)
    return None


def _flags(text: str) -> tuple[str, ...] | None:
    """Flags of a file: a JSON list or text, or the older words with blanks between."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, list):
        return tuple(str(one) for one in value)
    try:
        return tuple(shlex.split(value)) if isinstance(value, str) else None
    except ValueError:
        return tuple(value.split())
