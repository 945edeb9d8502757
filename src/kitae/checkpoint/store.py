"""The checkpoints of a run: saving so that nothing can be lost, and keeping the right ones.

A save writes a temporary folder, syncs it, gives it its name, then writes the index, then the pointer
`latest`, and only then removes what is no longer to be kept. So at every moment the last good checkpoint is
there under its name.

After a resume from an older step, the first save makes the later steps of the abandoned time line stale:
they are never resumed from and are removed by that save, after it is complete.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kitae.checkpoint.manifest import MANIFEST_NAME, Manifest
from kitae.checkpoint.native import NativeSink
from kitae.checkpoint.pipe import TensorSource
from kitae.checkpoint.resume import Checkpoint, Report, log_report, newest_checkpoint, open_checkpoint
from kitae.checkpoint.run_index import (
    POINTER_NAME,
    RunIndex,
    Saved,
    belongs_to,
    load_index,
    step_name,
    write_index,
)
from kitae.checkpoint.stream import stream
from kitae.errors import RecipeError
from kitae.storage.disk import check_space, storage_errors
from kitae.storage.files import replace_file, write_synced
from kitae.storage.folders import publish_folder, remove_folder, sweep, temporary_folder
from kitae.storage.lock import exclusive

LOCK_NAME = ".lock"
_BYTES_PER_ENTRY = 1024
"""Room for what headers and the manifest say about one tensor."""


class CheckpointStore:
    """A run's checkpoints: the newest `keep` and, with `keep_best`, that of the lowest held-out loss.

    One process saves at a time; a second one waits. `report` gets a line for everything done that nobody
    asked for.
    """

    def __init__(
        self, folder: Path, *, keep: int, keep_best: bool = False, report: Report = log_report
    ) -> None:
        if keep < 1:
            raise RecipeError(
                f"checkpoint.keep must be at least 1, not {keep}: the newest checkpoint is never removed"
            )
        self.folder = folder
        self._keep = keep
        self._keep_best = keep_best
        self._report = report

    def save(
        self,
        step: int,
        sources: Mapping[str, TensorSource],
        *,
        state: Mapping[str, Any],
        config: Mapping[str, Any],
        recipe_hash: str,
        heldout_loss: float | None = None,
    ) -> Path:
        """Save every tensor of `sources` (one for each kind) and what goes with them; the folder, durable.

        `state` and `config` are plain JSON objects, `heldout_loss` is in nats per token (a NaN counts as
        none). Raises StorageError when the disk does not take it, which leaves what was there before. A
        step that was saved before is replaced; later steps become stale and are removed.
        """
        needed_bytes = _needed_bytes(sources)
        measured = heldout_loss is not None and math.isfinite(heldout_loss)
        with storage_errors(self.folder, needed_bytes), self._exclusive():
            check_space(self.folder, needed_bytes)
            index = load_index(self.folder, self._report)
            saved = Saved(step, index.next_sequence, heldout_loss if measured else None)
            manifest = Manifest(
                index.run, saved.sequence, step, recipe_hash, saved.heldout_loss, state, config, {}, {}
            )
            final = self._publish(manifest, sources, index)
            self._enter(index, saved)
        return final

    def latest(self, *, verify: bool = True) -> Checkpoint | None:
        """The last complete checkpoint, passing over broken ones with a report; None when there was none."""
        return newest_checkpoint(self.folder, verify=verify, report=self._report)

    def open(self, step: int, *, verify: bool = True) -> Checkpoint:
        """The checkpoint of a step; WeightsError when it is not there or broken."""
        return open_checkpoint(self.folder / step_name(step), verify=verify)

    def steps(self) -> list[int]:
        """The steps of this run that can be resumed from, in the order of saving."""
        return [saved.step for saved in load_index(self.folder, self._report).live]

    def clean(self) -> list[str]:
        """Remove what dead saves left behind; what was done. Leaves everything alone while somebody saves."""
        done: list[str] = []
        if self.folder.is_dir():
            with storage_errors(self.folder), exclusive(self.folder / LOCK_NAME, wait=False) as held:
                done = sweep(self.folder) if held else []
        return done

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        with exclusive(self.folder / LOCK_NAME) as held:
            for line in sweep(self.folder) if held else ():
                self._report(line)
            yield

    def _publish(self, manifest: Manifest, sources: Mapping[str, TensorSource], index: RunIndex) -> Path:
        final = self.folder / step_name(manifest.step)
        manifest.encode()  # a state that is not JSON is found before gigabytes are written
        with temporary_folder(final) as temporary:
            for kind, source in sources.items():
                with NativeSink(temporary, source.tensors(), stem=kind) as sink:
                    stream(source, sink)
                manifest = manifest.joined(kind, sink.stored, sink.files)
            write_synced(temporary / MANIFEST_NAME, manifest.encode())
            self._spare_stranger(final, index)
            publish_folder(temporary, final)
        return final

    def _enter(self, index: RunIndex, saved: Saved) -> None:
        """Write index and pointer, then remove what is not to be kept."""
        name = step_name(saved.step)
        grown = RunIndex(index.run, (*(old for old in index.saves if old.step != saved.step), saved))
        write_index(self.folder, grown)
        replace_file(self.folder / POINTER_NAME, f"{name}\n".encode())
        kept = grown.kept(self._keep, self._keep_best)
        if kept != grown:
            for old in set(grown.saves) - set(kept.saves):
                remove_folder(self.folder / step_name(old.step))
            write_index(self.folder, kept)

    def _spare_stranger(self, final: Path, index: RunIndex) -> None:
        """Move a folder that another run has under the name out of the way."""
        if final.exists() and not belongs_to(final, index):
            other = final.with_name(f"{final.name}.other-{secrets.token_hex(4)}")
            final.rename(other)
            self._report(f"{final} is not of this run; it is now {other.name}")


def _needed_bytes(sources: Mapping[str, TensorSource]) -> int:
    infos = [info for source in sources.values() for info in source.tensors().values()]
    return sum(info.nbytes + _BYTES_PER_ENTRY for info in infos)
