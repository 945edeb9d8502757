"""A process beside the ranks of a machine, which helps and is not needed: it ends with its starter.

Its settings are the first line of its standard input, which stays open as long as the starter lives, and its
words are lines of its standard output.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

ENDING_S = 5.0
"""How long it may take to end once its input has ended."""

Hear = Callable[[str], None]


@dataclass(frozen=True)
class Helper:
    """What is started."""

    module: str
    """With a function `main`."""
    settings: Mapping[str, Any]
    """JSON values."""

    def with_settings(self, **more: Any) -> Helper:
        """With these as well."""
        return Helper(self.module, {**self.settings, **more})


@contextmanager
def helped(helper: Helper | None, hear: Hear | None = None) -> Iterator[None]:
    """Let it run while the block does; `hear` is called with its words, in a thread.

    That it cannot be started, or dies, or does not end in time, harms nobody.
    """
    process = _start(helper, hear is not None) if helper is not None else None
    if process is None:
        yield
        return
    listening = threading.Thread(target=_listen, args=(process.stdout, hear), daemon=True)
    listening.start()
    try:
        yield
    finally:
        try:
            _end(process)
        finally:
            process.kill()
            process.wait()
            listening.join(ENDING_S)


def _start(helper: Helper, heard: bool) -> subprocess.Popen[bytes] | None:
    # Python code and not `-m`, which would look in the current folder first.
    code = f"import sys; sys.path[:] = {sys.path}; from {helper.module} import main; main()"
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if heard else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the training
        )
    except OSError:
        return None
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.write(json.dumps(dict(helper.settings)).encode() + b"\n")
        process.stdin.flush()
    return process


def _listen(stream: IO[bytes] | None, hear: Hear | None) -> None:
    if stream is None or hear is None:
        return
    with stream:
        for line in stream:
            with suppress(Exception):  # what is heard must not end what is helped
                hear(line.decode(errors="replace").rstrip("\n"))


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(ENDING_S)
