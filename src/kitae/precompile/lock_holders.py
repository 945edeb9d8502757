"""Whether somebody compiles behind a lock file, as far as this machine's processes tell.

The locks of Neuron's cache are files that are there or not, of no content; a killed compiler leaves its own
behind, and the next process waits for it without end. Who made one is told by the lock itself where it is
held (flock), else by the compiler's command line, which names the graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from kitae.precompile.entries import Holder, Lock
from kitae.storage.lock import is_held
from kitae.storage.mounts import mount_of

COMPILERS = ("neuronx-cc", "neuron_cc_wrapper", "neuron_parallel_compile", "libneuronxla")
"""What a command line of a compiler has in it."""

Commands = Mapping[int, str]
"""Command lines by process."""


def compiler_commands() -> Commands:
    """The compilers that run on this machine."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or ())
        if any(name in command for name in COMPILERS):
            found[process.pid] = command
    return found


class Holders:
    """Judges the locks of one cache; processes are looked at once."""

    def __init__(self, root: Path, commands: Callable[[], Commands] = compiler_commands) -> None:
        self._shared = mount_of(root).is_network
        self._look = commands
        self._commands: Commands | None = None

    def lock(self, path: Path, name: str) -> Lock | None:
        """The lock file of the graph called `name`; None when it has gone meanwhile."""
        try:
            age_s = max(0.0, time.time() - path.stat().st_mtime)
        except OSError:
            return None
        holder, process = self._holder(path, name)
        return Lock(path, age_s, holder, process)

    def _holder(self, path: Path, name: str) -> tuple[Holder, int | None]:
        commands = self._all()
        process = next((pid for pid, command in commands.items() if name in command), None)
        if process is not None or is_held(path):
            return "alive", process
        # Of a compiler that names no graph, or of another machine, nobody knows what it works at.
        return ("unknown" if commands or self._shared else "gone"), None

    def _all(self) -> Commands:
        if self._commands is None:
            self._commands = self._look()
        return self._commands
