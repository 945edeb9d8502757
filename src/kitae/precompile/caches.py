"""The table of compilers' caches that this machine may have."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kitae.errors import PrecompileError
from kitae.precompile import cache_files, cache_neuron
from kitae.precompile.entries import Entry
from kitae.storage.cache import cache_folder
from kitae.storage.mounts import Mount, mount_of, shared_mount

Environment = Mapping[str, str]


@dataclass(frozen=True)
class Cache:
    """A kind of cache."""

    kind: str
    what: str
    root: Callable[[Environment], str]
    """Where it is: a folder, or an address that is none."""
    entries: Callable[[Path], Iterator[Entry]]
    shareable: bool
    """Whether it may lie on a file system that several machines see."""


def _xla_root(environment: Environment) -> str:
    return str(cache_folder() / "compiled")


CACHES: dict[str, Cache] = {
    one.kind: one
    for one in (
        Cache(
            cache_neuron.KIND,
            "Neuron's persistent cache (Trn1, torch-xla)",
            cache_neuron.root_of,
            cache_neuron.entries,
            shareable=False,
        ),
        Cache(
            cache_files.TORCHNEURON,
            "TorchNeuron's cache (Trn2, Trn3)",
            cache_files.torchneuron_root,
            cache_files.torchneuron_entries,
            shareable=True,
        ),
        Cache(
            cache_files.XLA,
            "XLA's cache on a CPU",
            _xla_root,
            cache_files.xla_entries,
            shareable=True,
        ),
    )
}


@dataclass(frozen=True)
class Place:
    """A cache of this machine."""

    cache: Cache
    root: Path

    def entries(self) -> list[Entry]:
        """What it has; nothing where it is not there."""
        return list(self.cache.entries(self.root)) if self.root.is_dir() else []


def place_of(kind: str, root: Path | None = None, environment: Environment = os.environ) -> Place:
    """Where a kind of cache is here, or at `root`. Raises `PrecompileError` for one that is no folder."""
    cache = CACHES[kind]
    where = cache.root(environment) if root is None else str(root)
    if "://" in where:
        raise PrecompileError(
            f"{where} is no folder: kitae reads caches of this machine; take a folder for the cache "
            "(NEURON_COMPILE_CACHE_URL), and keep archives there: kitae cache export, then copy the file"
        )
    return Place(cache, Path(where))


def places(environment: Environment = os.environ) -> list[Place]:
    """The caches of this machine that are there; one at an address that is no folder is left out."""
    found = [(cache, cache.root(environment)) for cache in CACHES.values()]
    return [Place(cache, Path(root)) for cache, root in found if "://" not in root and Path(root).is_dir()]


def check_root(place: Place, mounted: Callable[[Path], Mount] = mount_of) -> None:
    """Raise `PrecompileError` for a cache with locks on a file system that several machines see.

    One in a folder that is named after this machine is its own.
    """
    mount = shared_mount(place.root, socket.gethostname(), mounted)
    if mount is not None and not place.cache.shareable:
        raise PrecompileError(
            f"{place.root} lies on {mount.source} ({mount.kind}), which other machines see, too: the locks "
            f"of {place.cache.what} break there, and with them its files; put it on this machine's own disk "
            "(NEURON_COMPILE_CACHE_URL=/var/tmp/neuron-compile-cache), and bring graphs to other machines "
            "with kitae cache export and kitae cache import"
        )


def all_entries(found: Iterable[Place]) -> list[Entry]:
    """What several caches have."""
    return [entry for place in found for entry in place.entries()]
