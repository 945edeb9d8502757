"""One save under way, as one rank sees it: its part is written, then all parts are published.

No collective is needed for that, so it can go on in a thread beside the training. What went wrong is agreed
on in `end`, which all ranks call at the same point.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

from kitae.backend.group import Group
from kitae.checkpoint.agree import agreed
from kitae.checkpoint.draft import Draft
from kitae.checkpoint.parts import Sources, Task, write_part
from kitae.errors import StorageError
from kitae.storage.disk import storage_errors

_NICE = 10


class Progress(IntEnum):
    """How far a save is on one rank."""

    RUNNING = 0
    DONE = 1
    FAILED = 2


class Saving:
    """A save of which this rank does `task`; it will be the folder `final`."""

    def __init__(self, final: Path, draft: Draft, task: Task, control: Group, needed_bytes: int) -> None:
        self.task = task
        self._final = final
        self._draft = draft
        self._control = control
        self._needed_bytes = needed_bytes
        self._written: Future[None] = Future()
        self._published: Future[None] = Future()
        self._given_up = threading.Event()
        self._thread: threading.Thread | None = None

    def write(self, sources: Sources) -> None:
        """Write this rank's part here and now; `end` raises what went wrong."""
        self._settle(self._written, lambda: self._write_part(sources))

    def begin(self, copy: Callable[[], Sources]) -> None:
        """Copy the state, then do the rest in a thread, which ends with the process."""
        try:
            sources = copy()
        except Exception as error:
            self._written.set_exception(error)
            return
        self._thread = threading.Thread(target=self._all, args=(sources,), name="kitae-save", daemon=True)
        self._thread.start()

    @property
    def progress(self) -> Progress:
        """How far it is on this rank; waits for nobody."""
        for step in (self._written, self._published):
            if not step.done():
                return Progress.RUNNING
            if step.exception() is not None:
                return Progress.FAILED
        return Progress.DONE

    def end(self) -> Path:
        """Wait until it is published, on all ranks; the first error of any rank is raised on all of them."""
        try:
            agreed(self._control, lambda: (self._written.result(), None))
            if self._thread is None:
                self._publish()
            agreed(self._control, lambda: (self._published.result(), None))
        except Exception:
            self.give_up()
            raise
        return self._final

    def give_up(self) -> None:
        """Remove what was written; for a rank whose peers write no more."""
        self._given_up.set()
        if self._thread is not None:
            self._thread.join()
        self._draft.discard()

    def _all(self, sources: Sources) -> None:
        # Training comes first. Linux takes this for the thread alone, and for those that it starts.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        self.write(sources)
        if self._written.exception() is None:
            self._publish()

    def _write_part(self, sources: Sources) -> None:
        folder = self._draft.temporary
        if not folder.is_dir():
            raise StorageError(
                f"cannot save to {folder.parent}: it is another folder here than on rank 0; put the run's "
                "folder on a file system that all machines share"
            )
        self._draft.add(write_part(folder, sources, self.task))

    def _publish(self) -> None:
        self._settle(self._published, lambda: self._draft.publish(self._given_up))

    def _settle(self, future: Future[None], work: Callable[[], None]) -> None:
        try:
            with storage_errors(self._final.parent, self._needed_bytes):
                work()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(None)
