"""A decoder cut over real processes is the whole decoder: loss, and the gradient of every parameter."""

import pytest
import torch
from cut_decoders import CASES, full_gradients, results_of, whole
from ranks import run_ranks

ALL = [(cut, mode) for cut in (False, True) for mode in ("none", "selective", "full")]
VARIANTS = {2: ALL, 4: [(False, "none"), (True, "selective")], 8: [(False, "selective"), (True, "full")]}
"""(sequence parallel, recompute), by the tensor-parallel size."""


@pytest.fixture(scope="module", params=VARIANTS)
def ranks(request):
    """The size, and what each of its ranks gives for all cases."""
    size = request.param
    return size, run_ranks(size, results_of, VARIANTS[size], tp_size=size)


@pytest.mark.parametrize("case", CASES)
def test_loss_and_every_gradient_are_those_of_the_whole_model(ranks, case):
    """2 KV heads and 8 query heads; vocabulary 99; documents, ignored targets, several chunks of the loss."""
    size, by_rank = ranks
    loss, wanted = whole(case)
    for sequence_parallel, mode in VARIANTS[size]:
        results = [one[case, sequence_parallel, mode] for one in by_rank]
        assert {one for one, _ in results} == {results[0][0]}
        assert abs(results[0][0] - loss) < 1e-6 * loss
        found = full_gradients([gradients for _, gradients in results], case, size, sequence_parallel)
        assert found.keys() == wanted.keys()
        for name, gradient in wanted.items():
            largest = gradient.abs().max()
            assert largest > 1e-4, name
            assert (found[name] - gradient).abs().max() < 1e-5 * largest, f"{name} {sequence_parallel} {mode}"


@pytest.mark.parametrize("ranks", [2], indirect=True)
@pytest.mark.parametrize("case", CASES)
def test_recomputing_gives_the_same_bits(ranks, case):
    for results in ranks[1]:
        for cut in (False, True):
            (_, kept), *others = (results[case, cut, mode] for mode in ("none", "selective", "full"))
            for _, again in others:
                assert all(torch.equal(again[name], kept[name]) for name in kept)
