"""Finding and opening checkpoints; nothing here changes a file."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kitae.checkpoint.manifest import MANIFEST_NAME, Manifest, read_manifest, verify_files
from kitae.checkpoint.native import NativeSource
from kitae.checkpoint.run_index import load_index, step_folders, step_name
from kitae.errors import WeightsError
from kitae.storage.folders import set_aside

Report = Callable[[str], None]
log_report: Report = logging.getLogger(__name__).warning


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on the disk."""

    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        """Optimizer updates done."""
        return self.manifest.step

    @property
    def state(self) -> Mapping[str, Any]:
        """What the run saved besides tensors."""
        return self.manifest.state

    @property
    def config(self) -> Mapping[str, Any]:
        """The model's Hugging Face config."""
        return self.manifest.config

    def source(self, kind: str = "weights") -> NativeSource:
        """The tensors of one kind; WeightsError when there are none of it."""
        return NativeSource(self.path, kind, self.manifest)


def open_checkpoint(folder: Path, *, verify: bool = True) -> Checkpoint:
    """The checkpoint in a step folder; WeightsError when sizes or, with `verify`, hashes are not right."""
    manifest = read_manifest(folder)
    verify_files(folder, manifest, hashes=verify)
    return Checkpoint(folder, manifest)


def newest_checkpoint(store: Path, *, verify: bool = True, report: Report = log_report) -> Checkpoint | None:
    """The last complete checkpoint that a run saved in the folder `store`; None when there never was one.

    Broken ones are passed over, each with a report; WeightsError when all are broken, because beginning
    again from nothing is not for kitae to decide.
    """
    failures = []
    for folder in _newest_first(store, report):
        try:
            return open_checkpoint(folder, verify=verify)
        except (WeightsError, OSError) as error:
            report(f"passed over checkpoint {folder.name}: {error}")
            failures.append(str(error))
    if failures:
        raise WeightsError(
            f"none of the {len(failures)} checkpoints in {store} is usable; the newest: {failures[0]}; "
            "restore one, or move the folder away to begin again"
        )
    return None


def find_checkpoint(path: Path, *, verify: bool = True, report: Report = log_report) -> Checkpoint:
    """The checkpoint that `path` means: a step folder, or the newest of a run or its folder `checkpoints`."""
    if (path / MANIFEST_NAME).exists() or re.fullmatch(r"step-\d+", path.name):
        return open_checkpoint(path, verify=verify)
    for store in (path / "checkpoints", path):
        found = newest_checkpoint(store, verify=verify, report=report) if store.is_dir() else None
        if found is not None:
            return found
    raise WeightsError(
        f"{path} holds no checkpoint of kitae; give the folder of a run, its folder checkpoints, or one of "
        "the folders step-... in there"
    )


def _newest_first(store: Path, report: Report) -> Iterable[Path]:
    steps = [entry.step for entry in load_index(store, report).live]
    if steps:
        return [_present(store / step_name(step)) for step in reversed(steps)]
    folders = [folder for _, folder in sorted(step_folders(store).items(), reverse=True)]
    if folders:
        report(f"{store} has no usable index.json: taking its checkpoints by step")
    return folders


def _present(folder: Path) -> Path:
    return folder if folder.exists() else set_aside(folder) or folder
