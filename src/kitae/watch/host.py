"""The machine itself, as psutil tells: its CPU, memory and disk, and the processes of the training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from kitae.watch.samples import CoreSample, HostSample, ProcessSample
from kitae.watch.told import Told

_RANK = "RANK"
"""Variable that torch's launcher gives its processes."""


class Host:
    """Tells of CPU cores, and of the process `root` and the ranks below it."""

    name = "host"

    def __init__(self, folder: Path, root: int | None) -> None:
        """`folder` lies on the disk that is told of."""
        self._folder = folder
        self._root = _process_of(root)
        self._known: dict[int, tuple[psutil.Process, str]] = {}
        """By number: the process, and its tag; empty for one that is none of the training."""
        psutil.cpu_percent(percpu=True)  # the next call tells of the time since
        list(self._processes())

    def read(self) -> Told:
        """What the system tells of the time since the last call."""
        busy = [percent / 100 for percent in psutil.cpu_percent(percpu=True)]
        return Told(
            cores=tuple(CoreSample(index, one) for index, one in enumerate(busy)),
            processes=tuple(self._processes()),
            host=self._host(sum(busy) / len(busy) if busy else None),
        )

    def close(self) -> None:
        """Nothing is held."""

    def _host(self, busy: float | None) -> HostSample:
        memory = psutil.virtual_memory()
        values = {
            "cpu_utilisation": busy,
            "memory_used_bytes": memory.total - memory.available,
            "memory_total_bytes": memory.total,
        }
        with suppress(OSError, RuntimeError):
            values["swap_used_bytes"] = psutil.swap_memory().used
        with suppress(OSError):
            disk = psutil.disk_usage(str(self._folder))
            values |= {"disk_free_bytes": disk.free, "disk_total_bytes": disk.total}
        return HostSample(**values)  # type: ignore[arg-type]

    def _processes(self) -> Iterator[ProcessSample]:
        found = dict(self._tagged())
        if self._root is not None and self._root.pid in found and len(found) > 1:
            ranks = any(tag for pid, (_, tag) in found.items() if pid != self._root.pid)
            found[self._root.pid] = (self._root, "launcher" if ranks else "training")
        self._known = {pid: known for pid, known in self._known.items() if pid in found}
        for pid, (process, tag) in found.items():
            self._known[pid] = (process, tag)
            if tag:
                with suppress(psutil.Error):
                    yield ProcessSample(pid, tag, process.cpu_percent() / 100, process.memory_info().rss)

    def _tagged(self) -> Iterator[tuple[int, tuple[psutil.Process, str]]]:
        if self._root is None:
            return
        with suppress(psutil.Error):
            yield self._root.pid, (self._root, "training")
            for process in self._root.children(recursive=True):
                yield process.pid, self._known.get(process.pid) or (process, _tag(process))


def _process_of(pid: int | None) -> psutil.Process | None:
    try:
        return None if pid is None else psutil.Process(pid)
    except psutil.Error:
        return None


def _tag(process: psutil.Process) -> str:
    """`rank N` of a process that torch's launcher started as such."""
    with suppress(psutil.Error, OSError):
        rank = process.environ().get(_RANK, "")
        return f"rank {rank}" if rank.isdecimal() else ""
    return ""
