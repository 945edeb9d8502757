"""The learning rate as a function of the number of the update alone, so that a resumed run is right.

Updates are counted from 0. With a warm-up of W updates the first one already moves: update u takes (u + 1) /
W of the peak, so W - 1 takes all of it. The decay goes from the peak at update W to `min_ratio` at update
`steps`, which is the one after the last: with `min_ratio` 0 the last update of a run still moves the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from kitae.recipe.training import ScheduleConfig

DECAYS: dict[str, Callable[[float], float]] = {
    "linear": lambda done: 1 - done,
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
    "constant": lambda done: 1.0,
}
"""Share of the way from the end to the peak, by the share of the decay that is done (0 to 1)."""


@dataclass(frozen=True)
class Schedule:
    """Learning rates of a run of `steps` updates, of which `warmup_steps` rise."""

    config: ScheduleConfig
    peak: float
    steps: int
    warmup_steps: int

    def rate(self, update: int) -> float:
        """Learning rate of the update number `update`, counted from 0."""
        if update < self.warmup_steps:
            return self.peak * (update + 1) / self.warmup_steps
        done = (update - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        share = DECAYS[self.config.kind](min(1.0, done))
        return self.peak * (self.config.min_ratio + (1 - self.config.min_ratio) * share)
