"""SIGTERM and Ctrl-C: noticed at once, acted on where nothing can be half-done, by all ranks together."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

import torch

from kitae.backend.group import ALONE, Group

_CAUGHT = (signal.SIGTERM, signal.SIGINT)


class StopRequested(Exception):  # noqa: N818
    """Somebody asked the training to stop; raised by `StopSignals.check` between two units of work."""


class StopSignals:
    """While entered, SIGTERM and SIGINT only leave a note, which `check` turns into `StopRequested`.

    With several ranks `check` is a collective of `control`: a signal to any one of them stops all at the same
    place. A second SIGINT is a KeyboardInterrupt at once. Outside the main thread, where Python takes no
    handlers, it does nothing.
    """

    def __init__(self, control: Group = ALONE) -> None:
        self._control = control
        self._number = 0
        self._interrupts = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {one: signal.signal(one, self._note) for one in _CAUGHT}
            # A rank holds them back from its birth on (see launch.worker): one that came meanwhile comes now.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _CAUGHT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def check(self) -> None:
        """Raise `StopRequested` when a signal came to any rank."""
        number = self._number
        if self._control.size > 1:
            number = int(self._control.all_reduce(torch.tensor([number]), "max").item())
        if number:
            raise StopRequested(signal.Signals(number).name)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > 1:
                raise KeyboardInterrupt
        if self._control.size > 1:
            return  # the process that started the ranks says it
        # Not print: a handler may run inside one.
        os.write(2, f"\n{signal.Signals(number).name}: saving as soon as the work at hand is done\n".encode())
