"""Folders that are there completely or not at all, and what writers leave that were killed on the way."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from kitae.storage.files import aside_name, sync

_LEFTOVER = re.compile(r"\.(?P<purpose>tmp|old|trash)-(?P<final>.+)-(?P<process>\d+)-[0-9a-f]{8}")


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
    trash = aside_name(folder, "trash")
    with suppress(FileNotFoundError):
        folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)


def sweep(parent: Path, final_name: str | None = None, *, spare_living: bool = False) -> list[str]:
    """Remove what dead writers left in `parent`, restore what they had set aside; what was done.

    With `final_name`, only what belongs to that name. Whoever holds the writers' lock knows that they are
    dead; without a lock, `spare_living` goes by whether their process is there.
    """
    done = []
    for path in sorted(parent.iterdir()) if parent.is_dir() else []:
        match = _LEFTOVER.fullmatch(path.name)
        if match is None or final_name not in (None, match["final"]):
            continue
        if not (spare_living and psutil.pid_exists(int(match["process"]))):
            done.append(_sweep_one(path, match))
    return done


def set_aside(final: Path) -> Path | None:
    """The folder that had the name `final` when a writer died between the two renames of a replacement."""
    found = (path for path in final.parent.glob(f".old-{final.name}-*") if _LEFTOVER.fullmatch(path.name))
    return next(found, None)


def _sweep_one(path: Path, match: re.Match[str]) -> str:
    final = path.with_name(match["final"])
    if match["purpose"] == "old" and not final.exists():
        path.rename(final)
        return f"restored {final}, which an interrupted save had set aside"
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    return f"removed {path}, left by an interrupted save"
