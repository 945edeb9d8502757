"""A decoder cut over real processes is the whole decoder: loss, and the gradient of every parameter."""

import pytest
import torch
from cut_decoders import CASES, full_gradients, variants, whole
from ranks import run_ranks


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("tp_size", [2, 4, 8])
def test_loss_and_every_gradient_are_those_of_the_whole_model(tp_size, case):
    """2 KV heads and 8 query heads; vocabulary 99; documents, ignored targets, several chunks of the loss."""
    loss, wanted = whole(case)
    by_rank = run_ranks(tp_size, variants, case, tp_size=tp_size)
    for variant in by_rank[0]:
        losses = [results[variant][0] for results in by_rank]
        assert len(set(losses)) == 1, variant
        assert abs(losses[0] - loss) < 1e-6 * loss, variant
        found = full_gradients([results[variant][1] for results in by_rank], case, tp_size, variant[0])
        assert found.keys() == wanted.keys()
        for name, gradient in wanted.items():
            assert gradient.abs().max() > 1e-4, name
            difference = (found[name] - gradient).abs().max() / gradient.abs().max()
            assert difference < 1e-5, f"{name} {variant}: {difference}"
    for results in by_rank:
        for sequence_parallel in (False, True):
            kept = results[sequence_parallel, "none"][1]
            for mode in ("selective", "full"):
                again = results[sequence_parallel, mode][1]
                assert all(torch.equal(again[name], kept[name]) for name in kept), mode
