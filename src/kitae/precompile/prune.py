"""Which entries of a cache go: by state, age, compiler or size. What somebody compiles now stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kitae.errors import PrecompileError
from kitae.precompile.entries import Entry, Lock, State
from kitae.storage.folders import remove_folder


@dataclass(frozen=True)
class Wanted:
    """What is to go. None: not a reason."""

    states: tuple[State, ...] = ()
    older_than_s: float | None = None
    other_than_version: str | None = None
    most_bytes: int | None = None
    """Size to come below; the oldest go first."""


def chosen(entries: Sequence[Entry], wanted: Wanted) -> list[Entry]:
    """The entries that go, oldest first."""
    by_age = sorted((entry for entry in entries if not in_use(entry)), key=lambda entry: entry.modified)
    found = [entry for entry in by_age if _is_wanted(entry, wanted)]
    if wanted.most_bytes is not None:
        left = sum(entry.size_bytes for entry in entries) - sum(entry.size_bytes for entry in found)
        for entry in (one for one in by_age if one not in found):
            if left <= wanted.most_bytes:
                break
            found.append(entry)
            left -= entry.size_bytes
    return found


def in_use(entry: Entry) -> bool:
    """Whether somebody may be compiling it: its lock is not known to be left behind."""
    return entry.state == "locked" and any(lock.holder != "gone" for lock in entry.locks)


def _is_wanted(entry: Entry, wanted: Wanted) -> bool:
    old = wanted.older_than_s is not None and entry.age_s > wanted.older_than_s
    other = wanted.other_than_version not in (None, entry.version)
    return entry.state in wanted.states or old or other


def remove(entry: Entry) -> None:
    """Take an entry away; a reader sees it whole or not at all. Raises `PrecompileError`."""
    with _told(entry.path):
        if entry.path.is_dir():
            remove_folder(entry.path)
        else:
            entry.path.unlink(missing_ok=True)


def remove_lock(lock: Lock) -> None:
    """Take a lock away. Raises `PrecompileError`."""
    with _told(lock.path):
        lock.path.unlink(missing_ok=True)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PrecompileError(
            f"{path} cannot be removed ({error.strerror or error}); do it as its owner, on a disk that can "
            "be written to"
        ) from error


def left_locks(entries: Sequence[Entry], *, unknown: bool = False) -> list[Lock]:
    """Locks that nobody holds any more; with `unknown`, also those of which that cannot be told."""
    holders = ("gone", "unknown") if unknown else ("gone",)
    return [lock for entry in entries for lock in entry.locks if lock.holder in holders]
