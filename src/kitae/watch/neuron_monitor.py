"""neuron-monitor as a child of the sampler, whose newest report is read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kitae.launch.orphans import bound
from kitae.watch.neuron_report import NeuronCounts
from kitae.watch.told import Told

PROGRAM = "neuron-monitor"
INSTALLED = Path("/opt/aws/neuron/bin") / PROGRAM
AGAIN_S = 60.0
"""After which one that has ended is started again."""
_LATE = 3
"""Periods after which a report is missed."""
_RUNTIME_GROUPS = ("neuroncore_counters", "memory_used", "neuron_runtime_vcpu_usage", "execution_stats")
_SYSTEM_GROUPS = ("vcpu_usage", "memory_info", "neuron_hw_counters")


def find() -> str | None:
    """The program, where this machine has it."""
    return shutil.which(PROGRAM) or (str(INSTALLED) if os.access(INSTALLED, os.X_OK) else None)


def config(period_s: float) -> dict[str, Any]:
    """What it is asked for: every group, of all runtimes."""
    runtime = {"tag_filter": ".*", "metrics": [{"type": name} for name in _RUNTIME_GROUPS]}
    period = f"{period_s:.0f}s" if period_s == int(period_s) else f"{1000 * period_s:.0f}ms"
    return {
        "period": period,
        "neuron_runtimes": [runtime],
        "system_metrics": [{"type": name} for name in _SYSTEM_GROUPS],
    }


class NeuronMonitor:
    """Tells of NeuronCores, as long as the program reports."""

    name = PROGRAM

    def __init__(self, program: str, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._program, self._period_s, self._clock = program, period_s, clock
        self._counts = NeuronCounts()
        self._lock = threading.Lock()
        self._fresh: list[Mapping[str, Any]] = []
        """Reports that nobody has read."""
        self._last: Told = Told()
        self._heard = clock()
        self._why = ""
        self._start()

    def read(self) -> Told:
        """What came since the last time; the cores of before where nothing did, unless it is long ago."""
        with self._lock:
            reports, self._fresh = self._fresh, []
        for report in reports:
            told = self._counts.read(report)
            self._heard = self._clock()
            self._last = Told(
                told.cores, told.devices, told.processes, told.host, {}, told.notes, told.period_s
            )
        if self._clock() - self._heard > _LATE * self._period_s:
            return self._missed()
        return self._last.with_errors(self._counts.errors)

    def close(self) -> None:
        """End the program."""
        with suppress(OSError):
            self._process.kill()
        self._process.wait()
        self._reader.join()

    def _missed(self) -> Told:
        ended = self._process.poll()
        silent = f"{PROGRAM} has told nothing for {self._clock() - self._heard:.0f} s"
        if ended is None:
            return Told(notes=(silent,)).with_errors(self._counts.errors)
        if self._clock() - self._started > AGAIN_S:
            self.close()
            self._start()
        why = f"{silent}: it ended with code {ended}{self._why and f' ({self._why})'}"
        return Told(notes=(why,)).with_errors(self._counts.errors)

    def _start(self) -> None:
        self._started = self._clock()
        settings = os.memfd_create("neuron-monitor.json")
        try:
            os.write(settings, json.dumps(config(self._period_s)).encode())
            # Bound: it ends with this process, however that ends.
            self._process = subprocess.Popen(
                [*bound(), self._program, "-c", f"/proc/self/fd/{settings}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[settings],
            )
        finally:
            os.close(settings)
        self._reader = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._reader.start()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                report = json.loads(line)
            except (ValueError, RecursionError):
                self._why = line.decode(errors="replace").strip()[:200] or self._why
                continue
            with self._lock:
                self._fresh.append(report)
                del self._fresh[:-_LATE]
        process.stdout.close()
