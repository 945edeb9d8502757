"""How next tokens are chosen from their logits.

B rows, V vocabulary. First what was there already is made less likely, then temperature; filters narrow to
the k most likely tokens, then to the fewest that hold the share p, then to those that are not too much less
likely than the first. What has no token is never drawn, at no temperature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kitae.errors import RecipeError
from kitae.model.init import keyed_generator

_FIRST_LOOK = 1024
"""Of how many tokens the most likely are sorted first: they nearly always hold the share p."""
NEVER = float("-inf")
_FP32 = torch.finfo(torch.float32)


@dataclass(frozen=True)
class Sampler:
    """Greedy at temperature 0, else draws that depend on the logits, `seed`, sample and number alone."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        hot = self.temperature
        _require(0 <= hot < float("inf"), "temperature", hot, "0 (greedy) or more, and finite")
        k, penalty = self.top_k, self.repetition_penalty
        _require(k is None or k >= 1, "top_k", k, "a whole number above 0, or none")
        _require(_is_share(self.top_p), "top_p", self.top_p, "above 0 and at most 1, or none")
        _require(_is_share(self.min_p), "min_p", self.min_p, "above 0 and at most 1, or none")
        _require(0 < penalty < float("inf"), "repetition_penalty", penalty, "above 0; 1 changes nothing")

    def choose(
        self, logits: torch.Tensor, number: int, samples: Sequence[int], seen: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The ids [B] of new token `number` from logits [B, V] of any float dtype and device.

        `samples` are the numbers of the rows among those of their prompt. `seen` [B, V] are tokens that a row
        has already; it is read where there is a penalty.
        """
        if seen is not None and self.repetition_penalty != 1:
            logits = self._penalised(logits.float(), seen)
        if self.temperature == 0:
            return logits.argmax(-1)
        rows = logits.float().cpu()
        drawn = [self._draw(row, number, sample) for row, sample in zip(rows, samples, strict=True)]
        return torch.tensor(drawn, device=logits.device)

    def _penalised(self, logits: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """What is there already, less likely: CTRL's rule (Keskar et al. 2019), as in transformers."""
        less = torch.where(logits < 0, logits * self.repetition_penalty, logits / self.repetition_penalty)
        return torch.where(seen, less, logits)

    def _draw(self, logits: torch.Tensor, number: int, sample: int) -> int:
        ids, shares = self._candidates(logits)
        edges = shares.double().cumsum(-1)
        generator = keyed_generator(self.seed, "generate", sample, number)
        place = torch.rand((), dtype=torch.float64, generator=generator) * edges[-1]
        # Not behind the last share above zero, wherever rounding puts the draw.
        last = int(torch.searchsorted(edges, edges[-1]))
        return int(ids[min(int(torch.searchsorted(edges, place, right=True)), last)])

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """What a draw is made from: fp32 [V], summing to 1; temperature above 0."""
        ids, shares = self._candidates(logits)
        return torch.zeros_like(logits).scatter_(0, ids, shares / shares.sum())

    def _candidates(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and shares of what may be drawn; shares need not sum to 1, and some may be 0."""
        size = len(logits)
        # At most 0, and divided by a number of fp32: no temperature is too small or too large.
        logits = (logits - logits.max()) / min(max(self.temperature, _FP32.tiny), _FP32.max)
        if self.top_k is not None and self.top_k < size:
            # Equal ones behind the k-th stay: which of them are first is an accident.
            logits = logits.masked_fill(logits < logits.topk(self.top_k).values[-1], NEVER)
        ids, shares = torch.arange(size), logits.softmax(-1)
        if self.top_p is not None and self.top_p < 1:
            ids, shares = _fewest(shares, self.top_p)
        if self.min_p is not None:
            shares = shares.masked_fill(shares < self.min_p * shares.max(), 0.0)
        return ids, shares


def _fewest(shares: torch.Tensor, wanted: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The fewest tokens that hold a share, the most likely first; others at the end have shares of 0.

    Sorting all of a large vocabulary takes longer than a small model's forward pass.
    """
    ordered, ids = shares.topk(min(_FIRST_LOOK, len(shares)))
    if ordered.sum() < wanted or len(shares) <= _FIRST_LOOK:
        ordered, ids = shares.sort(descending=True, stable=True)
    return ids, ordered.masked_fill(ordered.cumsum(-1) - ordered >= wanted, 0.0)


def _is_share(value: float | None) -> bool:
    return value is None or 0 < value <= 1


def _require(holds: bool, name: str, value: object, wanted: str) -> None:
    if not holds:
        raise RecipeError(f"{name}: {value} where it must be {wanted}")
