"""Waits for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil


def wait_for(what: Callable[[], Any]) -> None:
    """Until it is true; half a minute at most."""
    end = time.monotonic() + 30
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether a process has ended, though its parent may not have asked for it yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
