"""What earlier trainings of a family say of the next one's time: a factor, and how sure it is.

x_i = log(actual / predicted) of n trainings, with mean m. Before any, a training's x is taken to be normal
around 0: a part `FAMILY` that all of a family share, and a part `NOISE` of each. With n of them

    noise^2 = (NOISE_RUNS NOISE^2 + sum (x_i - m)^2) / (NOISE_RUNS + n - 1)      (n >= 1)
    factor  = exp(m n / (n + noise^2 / FAMILY^2))                                shrunk towards 1
    spread  = Z sqrt(noise^2 / (n + noise^2 / FAMILY^2) + noise^2)               of the next one's logarithm

so one training counts for about three quarters of what it shows, and a further one that agrees with those
before never widens the interval. The interval is meant to hold nine of ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean

Z = 1.645
UNSEEN = 0.15
"""A calibrated plan of a family that was never trained is within this share, nine times of ten."""
NOISE = 0.04
"""Standard deviation between trainings of a family, in logarithms, before any says more."""
NOISE_RUNS = 4
"""How many trainings that guess is worth."""
FAMILY = sqrt((log(1 + UNSEEN) / Z) ** 2 - NOISE**2)
"""Standard deviation of what a family shares."""


@dataclass(frozen=True)
class Learned:
    """What a prediction is multiplied by."""

    factor: float
    spread: float
    """The interval is the prediction divided and multiplied by 1 + this."""
    runs: int


def learn(ratios: Sequence[float]) -> Learned:
    """From the ratios actual / predicted of trainings of one family."""
    logs = [log(one) for one in ratios]
    if not logs:
        return Learned(1.0, UNSEEN, 0)
    mean, count = fmean(logs), len(logs)
    noise2 = (NOISE_RUNS * NOISE**2 + sum((one - mean) ** 2 for one in logs)) / (NOISE_RUNS + count - 1)
    weight = count + noise2 / FAMILY**2
    return Learned(exp(mean * count / weight), exp(Z * sqrt(noise2 / weight + noise2)) - 1, count)
