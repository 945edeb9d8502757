"""A machine without a run: its devices, sampled by this process."""

from __future__ import annotations

import socket
import time

from kitae.watch.samples import Sample
from kitae.watch.sources import Source as Sampler
from kitae.watch.sources import open_source
from kitae.watch.top.scene import Scene
from kitae.watch.top.source import Past

FIRST_S, LATE_S = 0.5, 3.0
"""Of the first sample: how busy something is shows over a time, and reports of devices begin later."""


class MachineSource:
    """The one that this process is on."""

    def __init__(self, period_s: float) -> None:
        self._sampler: Sampler = open_source(period_s)
        self._past = Past()
        self._first: Sample | None = self._begin(time.monotonic() + period_s + LATE_S)

    def _begin(self, end: float) -> Sample:
        """The first sample with cores; after some time one without."""
        while True:
            time.sleep(FIRST_S)
            sample = self._sampler.sample()
            if sample.cores or time.monotonic() > end:
                return sample

    def look(self) -> Scene:
        """How it has been since the last look."""
        sample, self._first = self._first or self._sampler.sample(), None
        nodes = self._past.nodes({sample.node: sample})
        return Scene(title=socket.gethostname(), now=time.time(), nodes=nodes)

    def turn_to(self, rank: int) -> None:
        """There are no logs."""

    def close(self) -> None:
        """No more looks."""
        self._sampler.close()
