"""A process that ends with the one that started it, however that ended.

Run as a program with a parent's pid and a command it becomes that command: `bound` gives its words.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_LOOK_S = 1.0


def die_with(parent: int) -> None:
    """End this process, by SIGKILL, as soon as its parent with that pid is gone; now, if it is already."""
    if not _kernel_promises():
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it ended before the promise
        os.kill(os.getpid(), signal.SIGKILL)


def bound() -> tuple[str, ...]:
    """Words in front of a command that is to end, by SIGKILL, with this process; only Linux does so."""
    return (sys.executable, "-I", "-S", __file__, str(os.getpid()))


def _kernel_promises() -> bool:
    """Ask Linux to do it."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        refused: int = ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (AttributeError, OSError):
        return False
    return not refused


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _become(parent: str, *command: str) -> None:
    _kernel_promises()  # which holds for what this process becomes
    if os.getppid() == int(parent):
        os.execvp(command[0], command)


if __name__ == "__main__":
    _become(*sys.argv[1:])
