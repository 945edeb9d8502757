"""The hidden folder that a conversion is made in: kept when that is interrupted, and found again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kitae.checkpoint.convert_record import changes
from kitae.checkpoint.journal import Journal, read_journal
from kitae.errors import KitaeError, StorageError
from kitae.storage.files import aside_name
from kitae.storage.folders import sweep, temporary_of

Report = Callable[[str], None]
_BLOCK_BYTES = 512
"""Unit of `st_blocks`."""


def begun(target: Path, made: Mapping[str, Any], report: Report) -> list[Path]:
    """The folders in which this very conversion was begun; says what others there are of, and removes them.

    Those in which somebody is at work stay.
    """
    found = differences(target, made)
    ours = [folder for folder, differing in found.items() if not differing]
    done = sweep(target.parent, target.name, spare_living=True, spare=ours)
    for folder, differing in found.items():
        if not folder.exists():
            report(
                f"what was begun there is of another conversion ({'; '.join(differing)}): it starts afresh"
            )
    for line in done:
        report(line)
    return ours


def differences(target: Path, made: Mapping[str, Any]) -> dict[Path, list[str]]:
    """The folders in which conversions to the same place were begun, and in what these differ from ours."""
    noted = {folder: read_journal(folder) for folder in temporary_of(target)}
    ours = json.loads(json.dumps(made))
    return {folder: changes(one.made, ours) for folder, one in noted.items() if one is not None}


@contextmanager
def home_of(
    target: Path, made: Mapping[str, Any], left: Sequence[Path], total: int, report: Report, *, checked: bool
) -> Iterator[Journal]:
    """The journal of one of the folders that were `left`, or of a new one, to make `target` in.

    With `checked`, what is taken over was checked when it was read, as all that is noted will be. The folder
    is removed in the end. It is kept, with what is complete of the `total` tensors, when the conversion is
    interrupted or the disk fails.
    """
    home = aside_name(target, "tmp")
    taken = (Journal.take_over(folder, home, checked=checked) for folder in left)
    journal = next(filter(None, taken), None) or Journal.begin(home, made, checked=checked)
    for line in sweep(target.parent, target.name, spare_living=True):
        report(line)
    if journal.count:
        report(f"going on: {journal.count} of {total} tensors are there")
    try:
        yield journal
    except BaseException as error:
        hopeless = isinstance(error, KitaeError) and not isinstance(error, StorageError)
        if hopeless or not journal.keep():
            shutil.rmtree(journal.folder, ignore_errors=True)
        else:
            report(
                f"{journal.count} of {total} tensors stay in {journal.folder}: the same command goes on from "
                "them; remove the folder to give them up"
            )
        raise
    else:
        shutil.rmtree(journal.folder, ignore_errors=True)
    finally:
        journal.close()


def held_bytes(folders: Sequence[Path]) -> int:
    """Room that the files in folders take on the disk."""
    stats = (path.stat() for folder in folders for path in folder.rglob("*") if path.is_file())
    return sum(min(stat.st_size, stat.st_blocks * _BLOCK_BYTES) for stat in stats)
