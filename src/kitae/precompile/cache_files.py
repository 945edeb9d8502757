"""Caches of single files: TorchNeuron's on Trn2 and Trn3, and XLA's own, which torch-xla has on a CPU.

TorchNeuron: `<root>/ab/cd/abcd….neff`, written beside as `*.tmp` and renamed; so a file of that name is
whole. Only its environment variables are documented; the layout is what its own sources say. XLA: one file
for each graph, named by a number.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kitae.precompile.entries import Entry, State

TORCHNEURON, XLA = "torchneuron", "xla"
_NUMBER = re.compile(r"\d{10,40}")
Sort = Callable[[Path], State | None]
"""State of a file; None when it is none of the cache."""


def torchneuron_root(environment: Mapping[str, str] = os.environ) -> str:
    """Where TorchNeuron keeps compiled graphs."""
    return environment.get("TORCH_NEURONX_NEFF_CACHE_DIR") or "/tmp/neff_cache"


def torchneuron_entries(root: Path) -> Iterator[Entry]:
    """What TorchNeuron's cache has."""
    return _entries(TORCHNEURON, root.rglob("*"), _torchneuron)


def xla_entries(root: Path) -> Iterator[Entry]:
    """What XLA's cache has; its files may lie in a folder for each version."""
    return _entries(XLA, root.rglob("*"), _xla)


def _torchneuron(path: Path) -> State | None:
    if path.suffix == ".tmp":
        return "half-written"
    if path.suffix != ".neff":
        return None
    return "done" if path.stat().st_size else "half-written"


def _xla(path: Path) -> State | None:
    if _NUMBER.fullmatch(path.name) is None:
        return None
    return "done" if path.stat().st_size else "half-written"


def _entries(kind: str, paths: Iterator[Path], sort: Sort) -> Iterator[Entry]:
    for path in sorted(path for path in paths if path.is_file()):
        try:
            state, stat = sort(path), path.stat()
        except OSError:  # gone meanwhile
            continue
        if state is not None:
            name, version = path.name.removesuffix(".neff"), path.parent.name
            yield Entry(kind, name, path, state, stat.st_size, stat.st_mtime, version if kind == XLA else "")
