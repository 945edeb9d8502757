"""AdamW and LAMB over the rows of each parameter that this rank updates, and the clipping of gradients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import torch
from torch.optim.adamw import adamw

from kitae.parallel.mesh import Mesh
from kitae.parallel.shares import Shares
from kitae.recipe.training import OptimizerConfig
from kitae.train.lamb import TrustRatios, adam_direction
from kitae.train.precision import Weights
from kitae.train.rounding import Rounding, RoundingKey

MOMENTS = ("exp_avg", "exp_avg_sq")
"""Kinds of optimizer state, as a checkpoint names them."""


class Optimizer:
    """State and settings; subclasses make the updates. All ranks of the mesh make it together.

    State is there from the start, in fp32: out of memory shows before the first step, and a checkpoint can be
    read into it. Parameters in `decayed` are decayed, others are not. `seed` and `rounding` are for rounding.
    """

    def __init__(
        self,
        weights: Weights,
        decayed: Collection[str],
        config: OptimizerConfig,
        *,
        fused: bool,
        seed: int,
        shares: Shares,
        mesh: Mesh,
        rounding: Callable[[RoundingKey], Rounding] = lambda key: key,
    ) -> None:
        self._weights = weights
        self._config = config
        self._seed = seed
        self._rounding = rounding
        self._decayed = decayed
        self._updates = 0
        self._updates_before = 0
        self._moments = {
            kind: {
                name: torch.zeros_like(master, dtype=torch.float32, requires_grad=False)
                for name, master in weights.masters.items()
            }
            for kind in MOMENTS
        }
        self._prepare(decayed, fused, shares, mesh)

    def _decay(self, name: str) -> float:
        return self._config.weight_decay if name in self._decayed else 0.0

    def begin(self, config: OptimizerConfig, after: int) -> None:
        """Forget all but the weights, and go on with other settings after `after` updates."""
        self._config = config
        for moments in self._moments.values():
            for moment in moments.values():
                self._clear(moment)
        self.restore_step(0, after)

    def _clear(self, moment: torch.Tensor) -> None:
        moment.zero_()

    def _prepare(self, decayed: Collection[str], fused: bool, shares: Shares, mesh: Mesh) -> None:
        """Make what else a subclass needs."""
        raise NotImplementedError

    def step(self, learning_rate: float, gradients: Mapping[str, torch.Tensor]) -> None:
        """Update the weights from fp32 gradients of this rank's rows, which may be overwritten.

        A parameter without a gradient stays as it is. What the model computes with changes with
        `Weights.publish`.
        """
        raise NotImplementedError

    def moments(self, kind: str) -> dict[str, torch.Tensor]:
        """Live state of one of `MOMENTS` by parameter name: read it to save, fill it to restore."""
        return dict(self._moments[kind])

    def restore_step(self, step: int, before: int = 0) -> None:
        """Go on as after `step` updates since it began, with `before` of earlier phases ahead of them.

        Bias corrections depend on the first, rounding on both.
        """
        self._updates = step
        self._updates_before = before

    def _lend(self, names: Collection[str]) -> Iterable[dict[str, torch.Tensor]]:
        key = RoundingKey(self._seed, self._updates_before + self._updates)
        return self._weights.lend(names, self._rounding(key))


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019), by torch's kernels."""

    def _prepare(self, decayed: Collection[str], fused: bool, shares: Shares, mesh: Mesh) -> None:
        self._fused = fused
        self._steps = {
            name: torch.zeros((), dtype=torch.float32, device=master.device if fused else "cpu")
            for name, master in self._weights.masters.items()
        }

    @torch.no_grad()
    def step(self, learning_rate: float, gradients: Mapping[str, torch.Tensor]) -> None:
        """See `Optimizer`; the gradients stay as they are."""
        self._updates += 1
        for values in self._lend(gradients.keys()):
            for decay in sorted({self._decay(name) for name in values}, reverse=True):
                names = [name for name in values if self._decay(name) == decay]
                self._update({name: values[name] for name in names}, gradients, learning_rate, decay)

    def restore_step(self, step: int, before: int = 0) -> None:
        """See `Optimizer`."""
        super().restore_step(step, before)
        for count in self._steps.values():
            count.fill_(step)

    def _update(
        self,
        values: Mapping[str, torch.Tensor],
        gradients: Mapping[str, torch.Tensor],
        learning_rate: float,
        decay: float,
    ) -> None:
        first, second = (self._moments[kind] for kind in MOMENTS)
        beta1, beta2 = self._config.betas
        # The fused kernel goes through memory and asks for no strides.
        assert all(one.is_contiguous() and gradients[name].is_contiguous() for name, one in values.items())
        adamw(
            list(values.values()),
            [gradients[name] for name in values],
            [first[name] for name in values],
            [second[name] for name in values],
            [],
            [self._steps[name] for name in values],
            foreach=False,
            fused=self._fused,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=learning_rate,
            weight_decay=decay,
            eps=self._config.eps,
            maximize=False,
        )


class Lamb(Optimizer):
    """LAMB (You et al., 2020): Adam's direction and weight decay, scaled by a trust ratio for each tensor.

    For BERT at large batches: betas 0.9 and 0.999, eps 1e-6, weight decay 0.01, gradients clipped to 1.
    """

    def _prepare(self, decayed: Collection[str], fused: bool, shares: Shares, mesh: Mesh) -> None:
        self._ratios = TrustRatios(decayed, shares, mesh, self._config.max_trust_ratio)

    @torch.no_grad()
    def step(self, learning_rate: float, gradients: Mapping[str, torch.Tensor]) -> None:
        """See `Optimizer`; the gradients are overwritten with the updates, which takes no memory."""
        self._updates += 1
        first, second = (self._moments[kind] for kind in MOMENTS)
        betas, eps = self._config.betas, self._config.eps
        for name, gradient in gradients.items():
            adam_direction(gradient, (first[name], second[name]), betas=betas, eps=eps, updates=self._updates)
            gradient.add_(self._weights.masters[name], alpha=self._decay(name))
        self._ratios.apply(self._weights.masters, gradients)
        for values in self._lend(gradients.keys()):
            for name, value in values.items():
                value.add_(gradients[name], alpha=-learning_rate)


OPTIMIZERS: dict[str, type[Optimizer]] = {"adamw": AdamW, "lamb": Lamb}
"""By the recipe's `optimizer.name`."""


@torch.no_grad()
def clip(gradients: list[torch.Tensor], norm: float, max_norm: float | None) -> None:
    """Scale the gradients, whose global norm is `norm`, down to `max_norm`; smaller ones stay as they are."""
    if max_norm is not None and norm > max_norm:
        for gradient in gradients:
            gradient.mul_(max_norm / norm)
