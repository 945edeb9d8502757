"""AdamW and LAMB for a machine that collects graphs: numbers that change from update to update are tensors.

The same updates as in `train.optimizer` and `train.lamb`. Everything that changes something is multiplied by
`going`, 1 or 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch

from kitae.backend.base import Tensors
from kitae.parallel.mesh import Mesh
from kitae.parallel.shares import Shares
from kitae.train.lamb import TrustRatios
from kitae.train.optimizer import MOMENTS, Optimizer
from kitae.train.rounding import KeysThere, Rounding, RoundingKey

Tensor = torch.Tensor


@dataclass(frozen=True)
class Numbers:
    """What one update is made with, fp32 of one element each."""

    rate: Tensor
    """Learning rate."""
    first: Tensor
    second: Tensor
    """Weight of the new gradient in each moment."""
    kept: Tensor
    """Weight of the old second moment."""
    first_whole: Tensor
    second_whole: Tensor
    """Sum of the weights of all gradients so far in each moment: what corrects its bias."""

    @classmethod
    def of(cls, given: Tensor, going: Tensor) -> Numbers:
        """Of `given` (see `LazyOptimizer.numbers`); with a `going` of 0 nothing changes."""
        rate, first, second, kept, first_whole, second_whole = torch.split(given, 1)
        kept = torch.where(going > 0, kept, 1.0)
        return cls(rate * going, first * going, second * going, kept, first_whole, second_whole)


class LazyOptimizer(Optimizer):
    """Subclasses say how one parameter changes."""

    def step(self, learning_rate: float, gradients: Mapping[str, Tensor]) -> None:
        """See `Optimizer`."""
        device = next(iter(gradients.values())).device
        self.step_if(torch.ones(1).to(device), learning_rate, gradients)

    @torch.no_grad()
    def step_if(self, going: Tensor, learning_rate: float, gradients: Mapping[str, Tensor]) -> Tensors:
        """Update the weights if `going` [1] is 1, leave them if it is 0; what the graph is fed with."""
        self._updates += 1
        given = self.numbers(learning_rate).to(going.device)
        key = RoundingKey(self._seed, self._updates_before + self._updates)
        rounding = self._rounding(key)
        self._change(gradients, Numbers.of(given, going), rounding)
        keys = {"rounding_keys": rounding.numbers} if isinstance(rounding, KeysThere) else {}
        return {"numbers": given, **keys}

    def numbers(self, learning_rate: float) -> Tensor:
        """In host memory, [6] (see `Numbers`): for the update whose number is `self._updates`."""
        beta1, beta2 = self._config.betas
        whole = (1 - beta**self._updates for beta in (beta1, beta2))
        return torch.tensor([learning_rate, 1 - beta1, 1 - beta2, beta2, *whole], dtype=torch.float32)

    def _change(self, gradients: Mapping[str, Tensor], with_: Numbers, rounding: Rounding) -> None:
        raise NotImplementedError

    def _clear(self, moment: Tensor) -> None:
        moment.data = torch.zeros_like(moment)  # as at the beginning, so that the graph is the same

    def _moved(self, name: str, gradient: Tensor, with_: Numbers) -> Tensor:
        """Bring both moments of a parameter up to date; the direction that Adam goes in."""
        first, second = (self._moments[kind][name] for kind in MOMENTS)
        first.add_((gradient - first) * with_.first)
        second.copy_(second * with_.kept + gradient.square() * with_.second)
        deviation = second.sqrt() / with_.second_whole.sqrt() + self._config.eps
        return first / with_.first_whole / deviation


class LazyAdamW(LazyOptimizer):
    """See `train.optimizer.AdamW`."""

    def _prepare(self, decayed: Collection[str], fused: bool, shares: Shares, mesh: Mesh) -> None:
        """Nothing else is needed."""

    def _change(self, gradients: Mapping[str, Tensor], with_: Numbers, rounding: Rounding) -> None:
        for values in self._weights.lend(gradients.keys(), rounding):
            for name, value in values.items():
                direction = self._moved(name, gradients[name], with_)
                value.mul_(1 - with_.rate * self._decay(name)).sub_(direction * with_.rate)


class LazyLamb(LazyOptimizer):
    """See `train.optimizer.Lamb`."""

    def _prepare(self, decayed: Collection[str], fused: bool, shares: Shares, mesh: Mesh) -> None:
        self._ratios = TrustRatios(decayed, shares, mesh, self._config.max_trust_ratio)

    def _change(self, gradients: Mapping[str, Tensor], with_: Numbers, rounding: Rounding) -> None:
        masters = self._weights.masters
        updates = {
            name: self._moved(name, gradient, with_) + masters[name] * self._decay(name)
            for name, gradient in gradients.items()
        }
        self._ratios.apply(masters, updates)
        for values in self._weights.lend(gradients.keys(), rounding):
            for name, value in values.items():
                value.sub_(updates[name] * with_.rate)


LAZY_OPTIMIZERS: dict[str, type[LazyOptimizer]] = {"adamw": LazyAdamW, "lamb": LazyLamb}
"""By the recipe's `optimizer.name`."""
