"""An export folder in the making: one that appears as a whole, in the place of an older one when that is
wholly kitae's, or one that somebody else publishes.

An existing folder is replaced only when all in it was written by kitae, as its mark file lists: never does a
folder mix the files of two exports, and never is a file of somebody else removed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from kitae.checkpoint.coverage import listed
from kitae.errors import WeightsError
from kitae.storage.disk import check_space
from kitae.storage.files import aside_name, sync_all
from kitae.storage.folders import publish_folder, sweep

MARK = "kitae_export.json"
"""Lists the files that an export consists of."""
ADDED_LATER = {MARK, "proof.json"}
"""Files of kitae's own that the mark does not list."""


class Making(Protocol):
    """A folder in the making."""

    temporary: Path
    """Where the files are written."""
    done: Collection[str]
    """The tensors that are in it already."""

    def commit(self) -> None:
        """Take the files, which are complete."""
        ...

    def discard(self) -> None:
        """Give the folder up."""
        ...


class FolderInPlace:
    """A folder that its owner hides and publishes: written where it is, and may hold tensors already."""

    def __init__(self, folder: Path, done: Collection[str]) -> None:
        self.temporary, self.done = folder, done
        folder.mkdir(exist_ok=True)

    def commit(self) -> None:
        """List the files; to sync them is the owner's."""
        _mark(self.temporary)

    def discard(self) -> None:
        """Leave the folder: its owner removes it or goes on with it."""


class FolderReplacement:
    """A temporary folder that takes the place of `folder` when committed; WeightsError when it must not.

    StorageError when the disk has no room for `needed_bytes`.
    """

    done: Collection[str] = ()

    def __init__(self, folder: Path, needed_bytes: int) -> None:
        check_space(folder, needed_bytes)
        self.folder = folder
        # One killed between its two renames gets its old folder back here.
        sweep(folder.parent, folder.name, spare_living=True)
        _require_replaceable(folder)
        self.temporary = aside_name(folder, "tmp")
        self.temporary.mkdir(parents=True)

    def commit(self) -> None:
        """List and sync the files, then rename; a crash before that leaves the old folder as it was."""
        sync_all(self.temporary / name for name in (*_mark(self.temporary), MARK))
        publish_folder(self.temporary, self.folder)

    def discard(self) -> None:
        """Remove the temporary folder."""
        shutil.rmtree(self.temporary, ignore_errors=True)


def _mark(folder: Path) -> list[str]:
    """Write down what the export consists of; the files."""
    files = sorted(_files(folder) - {MARK})
    (folder / MARK).write_text(json.dumps({"files": files}, indent=2) + "\n")
    return files


def _require_replaceable(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise WeightsError(f"{folder} is a file; name another folder for the export")
    foreign = sorted(_files(folder) - _own_files(folder))
    if foreign:
        raise WeightsError(
            f"{folder} holds files that are not from an export of kitae ({listed(foreign)}), so it is not "
            "replaced; name another folder, or move this one away"
        )


def _files(folder: Path) -> set[str]:
    """All that is not a folder, by its path inside `folder`."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }


def _own_files(folder: Path) -> set[str]:
    try:
        return {*json.loads((folder / MARK).read_text())["files"], *ADDED_LATER}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
