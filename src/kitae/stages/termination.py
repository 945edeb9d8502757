"""SIGTERM outside the training loop: the stage at work leaves nothing half-done and is redone next time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kitae.errors import StoppedError


class Terminated(BaseException):
    """The signal has come; no `Exception`: code that turns any of those into another must not hide it."""

    def __init__(self) -> None:
        super().__init__("stopped by SIGTERM between two results; run the same command again to go on")


@contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM into a `StoppedError`, so that folders are cleaned up and the exit code says: again.

    The training loop takes the signal over while it runs. Outside the main thread this does nothing.
    Within, the stop is a `Terminated`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    except Terminated as stop:
        raise StoppedError(str(stop)) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(number: int, frame: FrameType | None) -> None:
    raise Terminated
