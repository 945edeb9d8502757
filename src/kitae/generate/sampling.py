"""How the next token is chosen from its logits.

V vocabulary. Filters narrow first to the k most likely tokens, then to the fewest that hold the share p.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kitae.errors import RecipeError
from kitae.model.init import keyed_generator


@dataclass(frozen=True)
class Sampler:
    """Greedy at temperature 0, else a draw that depends only on the logits, `seed` and the token's number."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _require(self.temperature >= 0, "temperature", self.temperature, "0 (greedy) or more")
        _require(
            self.top_k is None or self.top_k >= 1, "top_k", self.top_k, "a whole number above 0, or none"
        )
        _require(
            self.top_p is None or 0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1, or none"
        )

    def choose(self, logits: torch.Tensor, number: int) -> int:
        """The id of new token `number`, from its logits [V] of any float dtype and device."""
        if self.temperature == 0:
            return int(logits.argmax())
        probabilities = self.probabilities(logits.float().cpu())
        generator = keyed_generator(self.seed, "generate", number)
        return int(torch.multinomial(probabilities, 1, generator=generator))

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """What a draw is made from: fp32 [V], summing to 1; temperature above 0."""
        logits = (logits - logits.max()) / self.temperature  # at most 0: no temperature is too small
        if self.top_k is not None and self.top_k < len(logits):
            logits = logits.masked_fill(logits < logits.topk(self.top_k).values[-1], float("-inf"))
        if self.top_p is None:
            return logits.softmax(-1)
        ordered, order = logits.softmax(-1).sort(descending=True, stable=True)
        kept = ordered.masked_fill(ordered.cumsum(-1) - ordered >= self.top_p, 0.0)
        return torch.zeros_like(kept).scatter_(0, order, kept / kept.sum())


def _require(holds: bool, name: str, value: object, wanted: str) -> None:
    if not holds:
        raise RecipeError(f"{name}: {value} where it must be {wanted}")
