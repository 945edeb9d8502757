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
    """How often weights, gradient sums, the optimizer's state and attention that is written out go through
    memory, as a multiple of the least."""
    host_s: float
    """Seconds of the host between two updates, in which the device waits: losses go out, rows come in."""
    spread: float
    """The interval is the step time divided and multiplied by 1 + this."""
    basis: str
    """What the numbers rest on."""


HOST_S = 0.049
"""Fitted to encoders, whose updates can be as short as this; nothing to a decoder's of many seconds."""
STACKS: dict[str, Efficiency] = {
    "xla-decoder": Efficiency(0.608, 1.18, 1.0, HOST_S, 0.2, "fitted to 9 published rows of trn1.32xlarge"),
    "xla-encoder": Efficiency(0.622, 1.0, 3.44, HOST_S, 0.15, "fitted to 10 published rows of Trn1"),
    "neuron": Efficiency(0.43, 1.0, 2.0, HOST_S, 0.6, "no published row; another trainer's Trn2 is in it"),
    "cuda": Efficiency(0.45, 1.0, 1.0, 0.0, 0.35, "the field's usual share of the peak, not fitted"),
    "cpu": Efficiency(0.6, 1.0, 1.0, 0.0, 0.5, "a product measured now, not a training"),
}
"""By backend and, where the stacks differ, kind of model."""


def stack_of(work: Work) -> str:
    """Which entry of `STACKS` a work is of."""
    kind = f"{work.backend}-{'decoder' if work.is_decoder else 'encoder'}"
    return kind if kind in STACKS else work.backend


def efficiency_of(work: Work) -> Efficiency:
    """What the stack of a work reaches."""
    return STACKS[stack_of(work)]
