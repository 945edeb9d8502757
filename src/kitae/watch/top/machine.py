"""A machine without a run: its devices, sampled by this process."""

from __future__ import annotations

import socket
import time

from kitae.watch.sources import Source as Sampler
from kitae.watch.sources import open_source
from kitae.watch.top.scene import Scene
from kitae.watch.top.source import Past

FIRST_S = 0.5
"""Of the first sample: how busy something is shows over a time."""


class MachineSource:
    """The one that this process is on."""

    def __init__(self, period_s: float) -> None:
        self._sampler: Sampler = open_source(period_s)
        self._past = Past()
        time.sleep(min(FIRST_S, period_s))

    def look(self) -> Scene:
        """How it has been since the last look."""
        sample = self._sampler.sample()
        nodes = self._past.nodes({sample.node: sample})
        return Scene(title=socket.gethostname(), now=time.time(), nodes=nodes)

    def turn_to(self, rank: int) -> None:
        """There are no logs."""

    def close(self) -> None:
        """No more looks."""
        self._sampler.close()
