"""How much of what a machine can do a training gets out of it: at most three fitted numbers for each stack.

`benchmarks/plan_accuracy.py` fits those of Trainium1 to what its vendor published, row by row left out, and
prints what is off. The others have no rows to be fitted to, which their spread says.
"""

from __future__ import annotations

from dataclasses import dataclass

from kitae.plan.work import Work


@dataclass(frozen=True)
class Efficiency:
    """What a stack reaches."""

    products: float
    """Share of the peak that large matrix products reach."""
    link: float
    """Bus bandwidth of collectives inside an instance, as a multiple of the chip's published one."""
    traffic: float
    """How often weights and gradient sums go through memory in a micro-batch, as a multiple of the least."""
    scores_per_s: float
    """Attention probabilities that are dropped out of in a second and process; inf: they cost nothing."""
    spread: float
    """The interval is the step time divided and multiplied by 1 + this."""
    basis: str
    """What the numbers rest on."""


NO_COST = float("inf")
STACKS: dict[str, Efficiency] = {
    "xla-decoder": Efficiency(
        0.432, 1.82, 0.841, NO_COST, 0.2, "fitted to 8 published rows of trn1.32xlarge"
    ),
    "xla-encoder": Efficiency(0.675, 1.0, 4.82, 4.22e9, 0.15, "fitted to 6 published rows of trn1.32xlarge"),
    "neuron": Efficiency(0.432, 1.0, 2.0, 4.22e9, 0.6, "no published row: Trainium1's, more or less"),
    "cuda": Efficiency(0.45, 1.0, 1.0, NO_COST, 0.35, "the field's usual share of the peak, not fitted"),
    "cpu": Efficiency(0.6, 1.0, 1.0, NO_COST, 0.5, "a product measured now, not a training"),
}
"""By backend and, where the stacks differ, kind of model."""


def stack_of(work: Work) -> str:
    """Which entry of `STACKS` a work is of."""
    kind = f"{work.backend}-{'decoder' if work.is_decoder else 'encoder'}"
    return kind if kind in STACKS else work.backend


def efficiency_of(work: Work) -> Efficiency:
    """What the stack of a work reaches."""
    return STACKS[stack_of(work)]
