"""What failures of nodes leave of the time: checkpoints against work that is lost.

M mean time between failures of all nodes, d seconds of a checkpoint, R of a restart, t of work between two
checkpoints (Young, 1974; Daly, 2006, whose complete model is used). Failures come by chance at a constant
rate, also while checkpoints are written and while one restarts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, sqrt

NODE_MTBF_HOURS = 6300.0
"""Of a node of eight: 419 unexpected interruptions in 54 days on 2,048 nodes (Llama 3, arXiv 2407.21783)."""


@dataclass(frozen=True)
class Failures:
    """Of a training on all its nodes."""

    mtbf_s: float
    """Mean time between two failures of any node; infinite where none fails."""
    save_s: float
    """What the training waits for a checkpoint."""
    restart_s: float
    """From a failure to the first update of the next attempt."""

    @property
    def best_interval_s(self) -> float:
        """Seconds of work between two checkpoints that leave most."""
        saved, between = self.save_s, self.mtbf_s
        if between == float("inf"):
            return between
        if saved >= 2 * between:
            return between
        share = saved / (2 * between)
        return sqrt(2 * saved * between) * (1 + sqrt(share) / 3 + share / 9) - saved

    def goodput(self, interval_s: float) -> float:
        """Share of the time that ends up in updates, with a checkpoint after so many seconds of them."""
        if self.mtbf_s == float("inf"):
            return 1.0 if interval_s == float("inf") else interval_s / (interval_s + self.save_s)
        if interval_s == float("inf"):  # nothing is ever saved
            return 0.0
        lost = exp(min(700.0, self.restart_s / self.mtbf_s))
        again = expm1(min(700.0, (interval_s + self.save_s) / self.mtbf_s))
        return interval_s / (self.mtbf_s * lost * again)
