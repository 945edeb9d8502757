"""What alarms remember from look to look: the idle time of a node, the course of the loss."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import fsum, isnan, sqrt

from kitae.watch.reading import Columns, Readings
from kitae.watch.samples import Sample

GAP = 3.0
"""Periods without a sample after which nobody knows what a node did."""
WINDOW = 50
"""Updates of which the mean loss is compared."""
NOISE = 5.0
"""Standard errors by which one mean has to lie above the other: less may be chance."""
ON_CPU = "host"


@dataclass(frozen=True)
class Idle:
    """A stretch of time in which no core of a node did anything."""

    since: float
    until: float
    """In seconds since 1970."""
    cores: int

    @property
    def seconds(self) -> float:
        """How long."""
        return self.until - self.since


def idle_after(before: Idle | None, sample: Sample, below: float) -> Idle | None:
    """The stretch that a node is in after a sample; None when it works, or nothing is known of its cores."""
    if before is not None and sample.time <= before.until:
        return before  # nothing new
    busy = _busiest(sample)
    if busy is None or busy >= below:
        return None
    begun = sample.time - sample.period_s
    if before is None or sample.time - before.until > GAP * sample.period_s:
        return Idle(begun, sample.time, len(sample.cores))
    return Idle(before.since, sample.time, len(sample.cores))


def _busiest(sample: Sample) -> float | None:
    """How busy the busiest core is; of a CPU, which serves others, too, the busiest process of a training."""
    if sample.source == ON_CPU and sample.processes:
        own = [one.cpu_utilisation for one in sample.processes if one.cpu_utilisation is not None]
        return max(own, default=None)
    return max((core.utilisation for core in sample.cores if core.utilisation is not None), default=None)


@dataclass
class LossTrend:
    """The mean loss of the last updates, and the lowest such mean of the phase before."""

    _columns: Columns | None = None
    _seen: int = 0
    _phases: int = 0
    _window: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    lowest: float | None = None
    """Mean of `WINDOW` updates."""
    _error: float = 0.0
    """Standard error of that mean."""

    def take(self, readings: Readings) -> LossTrend:
        """What is new; a file that was read anew, or another phase, begins another course."""
        train = readings.train
        if train is not self._columns or len(train) < self._seen:
            self._columns, self._seen, self._phases = train, 0, 0
            self._begin()
        starts = [index for _, index in readings.phases[self._phases :]]
        for index in range(self._seen, len(train)):
            if index in starts:
                self._begin()
            if not isnan(train.loss[index]):
                self._add(train.loss[index])
        self._seen, self._phases = len(train), len(readings.phases)
        return self

    @property
    def mean(self) -> float | None:
        """Of the last updates; None before there are enough."""
        return fsum(self._window) / WINDOW if len(self._window) == WINDOW else None

    def rise(self) -> float | None:
        """How far the mean lies above the lowest, as a share of it; None where that may be chance."""
        mean, lowest = self.mean, self.lowest
        if mean is None or lowest is None or lowest <= 0:
            return None
        return (mean - lowest) / lowest if mean - lowest > NOISE * self._error else None

    def _begin(self) -> None:
        self._window.clear()
        self.lowest, self._error = None, 0.0

    def _add(self, loss: float) -> None:
        self._window.append(loss)
        mean = self.mean
        if mean is not None and (self.lowest is None or mean < self.lowest):
            self.lowest = mean
            self._error = sqrt(fsum((one - mean) ** 2 for one in self._window)) / WINDOW
