"""In which form losses and scores are computed: with shapes that follow the data, or with fixed ones.

Chosen once, by what the backend is (`Backend.static`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from kitae.train import loss, static_loss

Counts = Sequence[int] | torch.Tensor
"""How much there is to predict, by part of the loss; a tensor of numbers of at least 1 where they must not be
part of a graph."""


def at_least_one(count: int | torch.Tensor) -> int | torch.Tensor:
    """What to divide by."""
    return max(1, count) if isinstance(count, int) else count


@dataclass(frozen=True)
class Forms:
    """Functions with the arguments of those in `train.loss`."""

    cross_entropy: Callable[..., torch.Tensor]
    scores: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    static: bool
    """Whether micro-batches have the same tensors, and an update as many of them, whatever rows there are."""
    wide_dtype: torch.dtype
    """In which scores are summed: not every device has float64."""

    def wide(self, values: torch.Tensor) -> torch.Tensor:
        """Values to be summed."""
        return values.to(self.wide_dtype)


AS_DATA_SAY = Forms(loss.linear_cross_entropy, loss.token_scores, static=False, wide_dtype=torch.float64)
FIXED = Forms(
    static_loss.linear_cross_entropy, static_loss.token_scores, static=True, wide_dtype=torch.float32
)
FORMS = {False: AS_DATA_SAY, True: FIXED}
"""By `Backend.static`."""
