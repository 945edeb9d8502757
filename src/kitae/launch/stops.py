"""SIGTERM and Ctrl-C while ranks work: passed on to them, so that they save and leave together."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from kitae.launch.order import SAVING

HELD = (signal.SIGTERM, signal.SIGINT)
"""Signals that ask for a stop. Ranks are born with them blocked."""


class Stops:
    """Notes stop signals of this process while entered. Outside the main thread it notes none."""

    def __init__(self, says: str = SAVING) -> None:
        """`says` is what the first signal is answered with."""
        self._says = says
        self.asked: signal.Signals | None = None
        """The first that came."""
        self.at_once = False
        """Whether a second Ctrl-C came."""
        self._interrupts = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stops:
        if threading.current_thread() is threading.main_thread():
            self._before = {one: signal.signal(one, self._note) for one in HELD}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def ask(self, number: signal.Signals) -> None:
        """Take a stop that came another way."""
        if self.asked is None:
            self.asked = number

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += number == signal.SIGINT
        self.at_once = self._interrupts > 1
        if self.asked is None:
            self.asked = signal.Signals(number)
            # Not print: a handler may run inside one.
            os.write(2, f"\n{self.asked.name}: {self._says}\n".encode())
