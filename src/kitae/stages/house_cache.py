"""kitae's own cache: prepared text, imported weights, and models out of packages, as entries that are listed
and pruned.

All of it can be made again. What another process makes or waits for is locked, and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from kitae.precompile.caches import Cache, Environment, Place
from kitae.precompile.entries import Entry, Lock, State, size_and_time
from kitae.storage.cache import cache_folder
from kitae.storage.lock import is_held

_IsWhole = Callable[[Path], bool]


def _is_prepared(folder: Path) -> bool:
    return (folder / "card.json").is_file()


def _is_imported(folder: Path) -> bool:
    return (folder / "step-00000000" / "manifest.json").is_file()


def _is_model(folder: Path) -> bool:
    return (folder / "model").is_dir()


def _root(name: str, environment: Environment) -> str:
    return str(cache_folder() / name)


def _entries(kind: str, whole: _IsWhole, root: Path) -> Iterator[Entry]:
    for folder in sorted(root.iterdir()):
        if folder.is_dir():
            yield _entry(kind, folder, whole)


def _entry(kind: str, folder: Path, whole: _IsWhole) -> Entry:
    locks = _locks(folder)
    size, modified = size_and_time(path for path in folder.rglob("*") if path.is_file())
    hidden = folder.name.startswith(".")
    state: State = "locked" if locks else "done" if whole(folder) and not hidden else "half-written"
    return Entry(kind, folder.name, folder, state, size, modified or folder.stat().st_mtime, locks=locks)


def _locks(folder: Path) -> tuple[Lock, ...]:
    """The locks that somebody holds, of the name that a leftover belongs to as well."""
    name = folder.name.removeprefix(".").removeprefix("tmp-").partition("-")[0]
    files = (folder.with_name(f".{folder.name}.lock"), folder.with_name(f".{name}.lock"), folder / ".lock")
    return tuple(Lock(path, 0.0, "alive") for path in files if is_held(path))


def _cache(kind: str, what: str, whole: _IsWhole) -> Cache:
    return Cache(kind, what, partial(_root, kind), partial(_entries, kind, whole), shareable=True)


HOUSE: dict[str, Cache] = {
    one.kind: one
    for one in (
        _cache("data", "prepared text", _is_prepared),
        _cache("imported", "imported weights", _is_imported),
        _cache("models", "models out of packages", _is_model),
    )
}


def house_places() -> list[Place]:
    """The parts of kitae's own cache that are there."""
    found = [Place(cache, Path(cache.root({}))) for cache in HOUSE.values()]
    return [place for place in found if place.root.is_dir()]
