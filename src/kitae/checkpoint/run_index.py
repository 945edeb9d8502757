"""Which checkpoints a run has saved, in the order of saving: `index.json` beside them.

What is kept and what is resumed from follows this list, not the names (10000 sorts before 9900) nor the
times of the files (which copying changes). It repeats what the manifests say, so it can be made again from
them; the file `latest` holds the name of the last saved folder.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kitae.checkpoint.manifest import Manifest, read_manifest
from kitae.errors import WeightsError
from kitae.storage.files import replace_file

INDEX_NAME = "index.json"
POINTER_NAME = "latest"
_STEP = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class Saved:
    """One save of the run."""

    step: int
    sequence: int
    """How many-th save it was, from 1; steps may come again after a resume from an older one."""
    heldout_loss: float | None


@dataclass(frozen=True)
class RunIndex:
    """The saves of one run, in order."""

    run: str
    """Identity of the run, drawn at its first save; a folder that names another one is not touched."""
    saves: tuple[Saved, ...] = ()

    @property
    def live(self) -> list[Saved]:
        """Those that no later save of the same or a smaller step made stale."""
        live: list[Saved] = []
        for saved in reversed(self.saves):
            if not live or saved.step < live[-1].step:
                live.append(saved)
        return live[::-1]

    @property
    def next_sequence(self) -> int:
        """The number of the next save."""
        return max((saved.sequence for saved in self.saves), default=0) + 1

    def kept(self, keep: int, keep_best: bool) -> RunIndex:
        """The newest `keep` live saves and, if wanted, the best one (of equally good ones the newest)."""
        live = self.live
        kept = live[-keep:]
        measured = [saved for saved in reversed(live) if saved.heldout_loss is not None]
        best = min(measured, key=lambda saved: saved.heldout_loss or 0.0, default=None) if keep_best else None
        return RunIndex(self.run, tuple(saved for saved in live if saved in kept or saved == best))


def load_index(store: Path, report: Callable[[str], None]) -> RunIndex:
    """The index of a store, completed by what a save that died before writing it had published.

    A lost or damaged one is made again, with a report, from the manifests of the run that `latest` names;
    without that pointer nothing is known to be this run's, and the index is a new run's, empty.
    """
    index = _read_index(store, report)
    lost = index is None
    if index is None:
        index = RunIndex(_run_of_pointer(store) or secrets.token_hex(8))
    listed = {saved.step for saved in index.saves}
    unlisted = (_manifest(folder) for step, folder in step_folders(store).items() if step not in listed)
    own = [m for m in unlisted if m is not None and m.run == index.run and m.sequence >= index.next_sequence]
    if lost and own:
        report(f"{store / INDEX_NAME} was made again from the manifests of {len(own)} checkpoints")
    found = (Saved(manifest.step, manifest.sequence, manifest.heldout_loss) for manifest in own)
    return RunIndex(index.run, (*index.saves, *sorted(found, key=lambda saved: saved.sequence)))


def write_index(store: Path, index: RunIndex) -> None:
    """Replace `index.json`."""
    body = {"kitae_index": 1, "run": index.run, "saves": [vars(saved) for saved in index.saves]}
    replace_file(store / INDEX_NAME, json.dumps(body, indent=1).encode())


def write_pointer(store: Path, step: int) -> None:
    """Replace `latest`."""
    replace_file(store / POINTER_NAME, f"{step_name(step)}\n".encode())


def step_name(step: int) -> str:
    """Name of the folder of a step."""
    return f"step-{step:08d}"


def step_folders(store: Path) -> dict[int, Path]:
    """The folders named like steps, this run's or not, complete or not."""
    if not store.is_dir():
        return {}
    return {
        int(match[1]): path
        for path in store.iterdir()
        if (match := _STEP.fullmatch(path.name)) and path.is_dir()
    }


def belongs_to(folder: Path, index: RunIndex) -> bool:
    """Whether the folder is listed as a save of the run, or says itself that it is one."""
    if any(step_name(saved.step) == folder.name for saved in index.saves):
        return True
    manifest = _manifest(folder)
    return manifest is not None and manifest.run == index.run


def _read_index(store: Path, report: Callable[[str], None]) -> RunIndex | None:
    path = store / INDEX_NAME
    try:
        body: dict[str, Any] = json.loads(path.read_bytes())
        saves = tuple(Saved(int(s["step"]), int(s["sequence"]), s["heldout_loss"]) for s in body["saves"])
        return RunIndex(str(body["run"]), saves)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        report(f"{path} is damaged: {error!r}")
        return None


def _run_of_pointer(store: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        manifest = _manifest(store / Path((store / POINTER_NAME).read_text().strip()).name)
        return None if manifest is None else manifest.run
    return None


def _manifest(folder: Path) -> Manifest | None:
    with suppress(WeightsError, OSError):
        return read_manifest(folder)
    return None
