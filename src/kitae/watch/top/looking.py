"""The thread that looks at a source again and again, beside the screen."""

from __future__ import annotations

import threading
from collections.abc import Callable

from textual.message import Message

from kitae.watch.top.scene import Scene
from kitae.watch.top.source import Source

READING_S = 0.05
"""Between looks, while a long file is read."""
ENDED_TIMES = 5
"""A run that has ended is looked at so much less often."""


class Looked(Message):
    """The source was looked at."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene


class Failed(Message):
    """It could not be, for a reason that nobody foresaw."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class Looking(threading.Thread):
    """Looks at a source again and again, beside the screen, which stays quick where disks are slow."""

    def __init__(self, source: Source, period_s: float, post: Callable[[Message], object]) -> None:
        super().__init__(daemon=True, name="kitae-top")
        self._source, self._period_s, self._post = source, period_s, post
        self._rank = 0
        self._now, self._end, self._paused = threading.Event(), threading.Event(), threading.Event()

    def run(self) -> None:
        """Until it is to end."""
        while not self._end.is_set():
            try:
                scene = self._source.look()
            except Exception as error:
                self._post(Failed(error))
                return
            self._post(Looked(scene))
            ended = scene.gone or (scene.status is not None and not scene.status.active)
            reads = scene.read_share < 1
            self._wait(READING_S if reads else self._period_s * (ENDED_TIMES if ended else 1))

    def _wait(self, seconds: float) -> None:
        while not self._end.is_set():
            asked = self._now.wait(seconds)
            self._now.clear()
            if asked or not self._paused.is_set():
                return

    def pause(self, paused: bool) -> None:
        """Let the picture stay, or go on at once."""
        (self._paused.set if paused else self._paused.clear)()
        if not paused:
            self._now.set()

    def turn_to(self, rank: int) -> None:
        """Look at the log of another rank, at once."""
        self._source.turn_to(rank)
        self._now.set()

    def end(self) -> None:
        """No more looks; one that hangs is left to itself."""
        self._end.set()
        self._now.set()
