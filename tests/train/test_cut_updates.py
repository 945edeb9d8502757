import pytest
import torch
from cut_updates import assembled, updated, updated_each
from ranks import run_ranks

from kitae.parallel.mesh import Mesh

TOLERANCES = {("lamb", "fp32"): 1e-6, ("adamw", "fp32"): 1e-6, ("adamw", "bf16-sr"): 0.0}
"""Of the largest weight. fp32: the fused kernel rounds differently at the end of a tensor."""


@pytest.mark.parametrize(
    ("world", "tp_size", "zero1"), [(2, 2, False), (3, 1, True), (4, 2, True), (8, 4, True)]
)
def test_updates_are_the_same_on_every_topology(world, tp_size, zero1):
    """LAMB's ratios too, also of the 2 KV heads that 4 ranks hold twice; rounding by chance to the bit."""
    cases = [(*case, zero1) for case in TOLERANCES]
    ranks = run_ranks(world, updated_each, cases, tp_size=tp_size)
    for (kind, precision, _), boxes in zip(cases, zip(*ranks, strict=True), strict=True):
        alone, cut = assembled([updated(Mesh(), kind, precision, False)]), assembled(boxes)
        tolerance = TOLERANCES[kind, precision]
        for name, one in alone.items():
            assert (cut[name] - one).abs().max() <= tolerance * one.abs().max(), (kind, precision, name)


def test_the_same_topology_twice_is_the_same_to_the_bit():
    cases = [("lamb", "bf16-sr", True)]
    once, again = (assembled(rank[0] for rank in run_ranks(2, updated_each, cases)) for _ in range(2))
    assert all(torch.equal(once[name], one) for name, one in again.items())
