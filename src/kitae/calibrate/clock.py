"""Times of short pieces of work on a machine that others use, too."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

AGREE = 1.03
"""The second best try may take so much longer than the best when nobody was in the way of either."""
PATIENCE = 5
"""Times the budget that is spent until two tries agree."""


class OutOfTimeError(Exception):
    """Others are so much in the way that not all can be measured in time."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one piece of work, tried several times."""

    best: float
    """What it takes when nobody is in the way."""
    usual: float
    """Median."""
    tries: int

    @property
    def spread(self) -> float:
        """How much longer it usually takes than at its best, as a share."""
        return self.usual / self.best - 1


def timed(work: Callable[[], object], *, budget_s: float, least: int = 3, most: int = 50) -> Timing:
    """Try `work` once to warm up, then again for about `budget_s`, and longer where no two tries agree.

    Work of one thread is timed in its own processor time, which others on the machine hardly lengthen.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    work()
    seconds: list[float] = []
    begin = time.perf_counter()
    while len(seconds) < least or (
        len(seconds) < most and _go_on(seconds, time.perf_counter() - begin, budget_s)
    ):
        start = clock()
        work()
        seconds.append(clock() - start)
    return Timing(min(seconds), median(seconds), len(seconds))


def together(work: Callable[[], object], tries: int = 8) -> Timing:
    """Try what several processes do together, equally often in each of them.

    In the processor time of this one, which has the copies that collectives make, but no waiting.
    """
    work()
    seconds = []
    for _ in range(tries):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return Timing(min(seconds), median(seconds), tries)


def _go_on(seconds: list[float], spent_s: float, budget_s: float) -> bool:
    best, second = sorted(seconds)[:2]
    return spent_s < budget_s * (1 if second <= AGREE * best else PATIENCE)
