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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kitae.backend.group import ALONE, Group
from kitae.checkpoint.agree import agreed
from kitae.checkpoint.draft import Draft, Following, Leading
from kitae.checkpoint.live import LiveSource
from kitae.checkpoint.manifest import MANIFEST_NAME, Manifest
from kitae.checkpoint.owners import Division, divide
from kitae.checkpoint.parts import Part, Task, joined, task_of
from kitae.checkpoint.pipe import TensorSource
from kitae.checkpoint.resume import Checkpoint, Report, log_report, newest_checkpoint, open_checkpoint
from kitae.checkpoint.run_index import (
    RunIndex,
    Saved,
    belongs_to,
    load_index,
    step_name,
    write_index,
    write_pointer,
)
from kitae.checkpoint.saving import Progress, Saving
from kitae.checkpoint.snapshot import Snapshot
from kitae.errors import RecipeError
from kitae.parallel.layout import ParameterLayout
from kitae.storage.disk import check_space, storage_errors
from kitae.storage.files import aside_name, write_synced
from kitae.storage.folders import publish_folder, remove_folder, sweep
from kitae.storage.lock import exclusive

LOCK_NAME = ".lock"


LayoutsOf = Callable[[int], list[ParameterLayout]]
"""Gives the layouts of what a rank of the world holds."""


class CheckpointStore:
    """A run's checkpoints: the newest `keep` and, with `keep_best`, that of the lowest held-out loss.

    All ranks of `control` save together: `save`, `begin_save`, `check` and `wait` are for all of them to call
    at the same point; everything else is for one rank. One run saves at a time; a second one waits. `report`
    gets a line for everything done that nobody asked for.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep: int,
        keep_best: bool = False,
        report: Report = log_report,
        control: Group = ALONE,
    ) -> None:
        if keep < 1:
            raise RecipeError(
                f"checkpoint.keep must be at least 1, not {keep}: the newest checkpoint is never removed"
            )
        self.folder = folder
        self._keep = keep
        self._keep_best = keep_best
        self._report = report
        self._control = control
        self._divided: tuple[LayoutsOf, Division] | None = None
        self._snapshot = Snapshot()
        self._saving: Saving | None = None

    def save(
        self,
        step: int,
        sources: Mapping[str, TensorSource],
        *,
        state: Mapping[str, Any],
        config: Mapping[str, Any],
        recipe_hash: str,
        heldout_loss: float | None = None,
        layouts_of: LayoutsOf | None = None,
    ) -> Path:
        """Save every tensor of `sources` (one for each kind) and what goes with them; the folder, durable.

        `state` and `config` are plain JSON objects, `heldout_loss` is in nats per token (a NaN counts as
        none). Several ranks each give what they hold and `layouts_of`, from which every rank finds the boxes
        that it has to write (the same function at each save, and it is worked out once). Raises StorageError,
        on every rank, when the disk does not take it on one, which leaves what was there before. A step that
        was saved before is replaced; later steps become stale and are removed.
        """
        about = _About(step, state, config, recipe_hash, heldout_loss)
        saving = self._open_save(about, sources, layouts_of)
        try:
            saving.write(sources)
            return saving.end()
        except BaseException:
            saving.give_up()
            raise

    def begin_save(
        self,
        step: int,
        sources: Mapping[str, LiveSource],
        *,
        state: Mapping[str, Any],
        config: Mapping[str, Any],
        recipe_hash: str,
        heldout_loss: float | None = None,
        layouts_of: LayoutsOf | None = None,
    ) -> None:
        """Copy what `save` would write, and write it beside the training: published once it is complete.

        The copy stays in host memory for the next save to reuse. Waits for the save before, and raises what
        went wrong with it. What goes wrong with this one is raised by `check` or `wait`.
        """
        about = _About(step, state, config, recipe_hash, heldout_loss)
        saving = self._open_save(about, sources, layouts_of)
        saving.begin(lambda: self._snapshot.take(sources, saving.task))
        self._saving = saving

    def check(self) -> Path | None:
        """The folder of the save that was begun, once it is complete; None before, and when there is none.

        To be called by all ranks once a step. It costs nothing when no save is under way, and one small
        exchange while one is. By that all ranks learn at the same step that it is done, or that it failed on
        one of them: then StorageError is raised on all, so that none of them is left waiting in a collective.
        """
        if self._saving is None:
            return None
        progress = self._control.exchange(self._saving.progress)
        going_on = Progress.RUNNING in progress and Progress.FAILED not in progress
        return None if going_on else self.wait()

    def wait(self) -> Path | None:
        """Wait for the save that was begun; its folder, durable, or None when there is none.

        Raises StorageError on all ranks when it failed on one.
        """
        saving, self._saving = self._saving, None
        return None if saving is None else saving.end()

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

    def _open_save(
        self, about: _About, sources: Mapping[str, TensorSource], layouts_of: LayoutsOf | None
    ) -> Saving:
        """Agree on what each rank writes, and where."""
        self.wait()
        control = self._control

        def plan() -> tuple[Task, int]:
            task = task_of(sources, control, self._division(layouts_of))
            return task, task.needed_bytes(sources)

        task, needs = agreed(control, plan)

        def open_draft() -> tuple[Leading | None, str]:
            leading = self._lead(about, task, sum(needs)) if control.rank == 0 else None
            return leading, leading.temporary.name if leading else ""

        leading, names = agreed(control, open_draft)
        draft: Draft = leading or Following(self.folder / names[0], control.rank)
        return Saving(self.folder / step_name(about.step), draft, task, control, sum(needs))

    def _division(self, layouts_of: LayoutsOf | None) -> Division | None:
        if layouts_of is None:
            return None
        if self._divided is None or self._divided[0] != layouts_of:
            self._divided = layouts_of, divide([layouts_of(rank) for rank in range(self._control.size)])
        return self._divided[1]

    def _lead(self, about: _About, task: Task, needed_bytes: int) -> Leading:
        """Lock the store and make the temporary folder."""
        final = self.folder / step_name(about.step)
        with storage_errors(self.folder, needed_bytes), ExitStack() as stack:
            stack.enter_context(self._exclusive())
            check_space(self.folder, needed_bytes)
            index = load_index(self.folder, self._report)
            manifest = about.manifest(index)
            manifest.encode()  # a state that is not JSON is found before gigabytes are written
            temporary = aside_name(final, "tmp")
            temporary.mkdir()
            peers = range(1, self._control.size)
            finish = partial(self._finish, names=task.names)
            return Leading(temporary, final, manifest, index, peers, stack.pop_all(), finish)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        with exclusive(self.folder / LOCK_NAME) as held:
            for line in sweep(self.folder) if held else ():
                self._report(line)
            yield

    def _finish(self, draft: Leading, parts: list[Part], names: Sequence[str] | None) -> None:
        manifest = joined(draft.manifest, parts, names)
        self._publish(draft, manifest)
        self._enter(draft.index, Saved(manifest.step, manifest.sequence, manifest.heldout_loss))

    def _publish(self, draft: Leading, manifest: Manifest) -> None:
        write_synced(draft.temporary / MANIFEST_NAME, manifest.encode())
        self._spare_stranger(draft.final, draft.index)
        publish_folder(draft.temporary, draft.final)

    def _enter(self, index: RunIndex, saved: Saved) -> None:
        """Write index and pointer, then remove what is not to be kept."""
        grown = RunIndex(index.run, (*(old for old in index.saves if old.step != saved.step), saved))
        write_index(self.folder, grown)
        write_pointer(self.folder, saved.step)
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


@dataclass(frozen=True)
class _About:
    """What a save holds besides tensors."""

    step: int
    state: Mapping[str, Any]
    config: Mapping[str, Any]
    recipe_hash: str
    heldout_loss: float | None

    def manifest(self, index: RunIndex) -> Manifest:
        """The manifest as far as it is known before anything is written."""
        loss = self.heldout_loss
        measured = loss if loss is not None and math.isfinite(loss) else None
        rest = (self.step, self.recipe_hash, measured, self.state, self.config)
        return Manifest(index.run, index.next_sequence, *rest, {}, {})
