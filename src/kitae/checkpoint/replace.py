"""An export folder that appears as a whole, in the place of an older one when that is wholly kitae's.

An existing folder is replaced only when all in it was written by kitae, as its mark file lists: never does a
folder mix the files of two exports, and never is a file of somebody else removed.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import psutil

from kitae.checkpoint.coverage import listed
from kitae.checkpoint.publish import aside_name, publish_folder, sync_folder
from kitae.errors import WeightsError

MARK = "kitae_export.json"
"""Lists the files that an export consists of."""
ADDED_LATER = {MARK, "proof.json"}
"""Files of kitae's own that the mark does not list."""


class FolderReplacement:
    """A temporary folder that takes the place of `folder` when committed; WeightsError when it must not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _clear_leftovers(folder)
        _require_replaceable(folder)
        self.temporary = aside_name(folder, "tmp")
        self.temporary.mkdir(parents=True)

    def commit(self) -> None:
        """List and sync the files, then rename; a crash before that leaves the old folder as it was."""
        files = sorted(path.name for path in self.temporary.iterdir())
        (self.temporary / MARK).write_text(json.dumps({"files": files}, indent=2) + "\n")
        for name in (*files, MARK):
            sync_folder(self.temporary / name)
        publish_folder(self.temporary, self.folder)

    def discard(self) -> None:
        """Remove the temporary folder."""
        shutil.rmtree(self.temporary, ignore_errors=True)


def _require_replaceable(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise WeightsError(f"{folder} is a file; name another folder for the export")
    foreign = sorted({path.name for path in folder.iterdir()} - _own_files(folder))
    if foreign:
        raise WeightsError(
            f"{folder} holds files that are not from an export of kitae ({listed(foreign)}), so it is not "
            "replaced; name another folder, or move this one away"
        )


def _own_files(folder: Path) -> set[str]:
    try:
        return {*json.loads((folder / MARK).read_text())["files"], *ADDED_LATER}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _clear_leftovers(folder: Path) -> None:
    """Clear what killed exports left beside `folder`; one killed between its renames gets its old back."""
    pattern = re.compile(rf"\.(tmp|old)-{re.escape(folder.name)}-(\d+)-[0-9a-f]{{8}}")
    for path in sorted(folder.parent.iterdir()) if folder.parent.is_dir() else []:
        match = pattern.fullmatch(path.name)
        if match is None or psutil.pid_exists(int(match[2])):
            continue
        if match[1] == "old" and not folder.exists():
            path.rename(folder)
        else:
            shutil.rmtree(path, ignore_errors=True)
