"""Folders that are there completely or not at all, and what writers leave that were killed on the way."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from kitae.storage.files import aside_name, sync
from kitae.storage.lock import is_held

_LEFTOVER = re.compile(r"\.(?P<purpose>tmp|old|trash)-(?P<final>.+)-(?P<process>\d+)-[0-9a-f]{8}")

JOURNAL_NAME = "journal.jsonl"
"""A temporary folder that holds this file is in use as long as somebody holds a lock on it."""


@contextmanager
def temporary_folder(final: Path) -> Iterator[Path]:
    """A folder beside `final`, gone again when the block fails."""
    folder = aside_name(final, "tmp")
    folder.mkdir(parents=True)
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def publish_folder(temporary: Path, final: Path) -> None:
    """Give a folder of synced files its final name; one that had it goes once the new one is safe."""
    for path in (*temporary.rglob("*"), temporary):
        if path.is_dir():
            sync(path)
    old = aside_name(final, "old")
    replaces = final.exists()
    if replaces:
        final.rename(old)
    try:
        temporary.rename(final)
    except OSError:
        if replaces:
            old.rename(final)
        raise
    sync(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder in such a way that it is never seen in part under its name."""
    _discard(folder, aside_name(folder, "trash"))


def sweep(
    parent: Path,
    final_name: str | None = None,
    *,
    spare_living: bool = False,
    spare: Collection[Path] = (),
) -> list[str]:
    """Remove what dead writers left in `parent`, restore what they had set aside; what was done.

    With `final_name`, only what belongs to that name. Whoever holds the writers' lock knows that they are
    dead; without it, `spare_living` goes by whether their process is there, or the lock of their journal
    held. What is in `spare` stays in any case.
    """
    return [
        _sweep_one(path, match)
        for path, match in _left(parent, final_name)
        if path not in spare and not (spare_living and _living(path, match))
    ]


def temporary_of(final: Path) -> list[Path]:
    """The temporary folders of `final`, of the living and of the dead."""
    return [
        path for path, match in _left(final.parent, final.name) if match["purpose"] == "tmp" and path.is_dir()
    ]


def set_aside(final: Path) -> Path | None:
    """The folder that had the name `final` when a writer died between the two renames of a replacement."""
    found = (path for path in final.parent.glob(f".old-{final.name}-*") if _LEFTOVER.fullmatch(path.name))
    return next(found, None)


def _left(parent: Path, final_name: str | None) -> list[tuple[Path, re.Match[str]]]:
    """What writers left or are at, for one name or for all."""
    paths = sorted(parent.iterdir()) if parent.is_dir() else []
    found = ((path, _LEFTOVER.fullmatch(path.name)) for path in paths)
    return [(path, match) for path, match in found if match and final_name in (None, match["final"])]


def _living(path: Path, match: re.Match[str]) -> bool:
    """Whether the writer is at work; a process' number may be another's since, or of another machine."""
    held = is_held(path / JOURNAL_NAME)
    return psutil.pid_exists(int(match["process"])) if held is None else held


def _discard(folder: Path, trash: Path) -> None:
    """Remove a folder; of several who do so or go on with it, the one whose rename comes first has it."""
    with suppress(FileNotFoundError):
        folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)


def _sweep_one(path: Path, match: re.Match[str]) -> str:
    final = path.with_name(match["final"])
    if match["purpose"] == "old" and not final.exists():
        path.rename(final)
        return f"restored {final}, which an interrupted save had set aside"
    if path.is_dir():
        _discard(path, aside_name(final, "trash"))
    else:
        path.unlink(missing_ok=True)
    return f"removed {path}, left by an interrupted save"
