"""An encoder cut over real processes is the whole encoder: loss, every gradient, and their norm."""

import pytest
import torch
from cut_encoders import HEADS, cut_results, draws, encoder_of, full_gradients, results_of
from ranks import run_ranks

from kitae.errors import RecipeError
from kitae.parallel.gradients import global_norm
from kitae.parallel.mesh import Mesh
from kitae.parallel.region import region_of

MODES = ("none", "selective", "full")
VARIANTS = {
    2: [(cut, mode, dropped) for cut in (False, True) for mode in MODES for dropped in (False, True)],
    4: [(False, "none", True), (True, "selective", True), (True, "none", False)],
}
"""(sequence parallel, recompute, whether something is dropped), by the tensor-parallel size."""


@pytest.fixture(scope="module", params=VARIANTS)
def ranks(request):
    """The size, and what each of its ranks gives for all cases."""
    size = request.param
    return size, run_ranks(size, cut_results, VARIANTS[size], tp_size=size)


@pytest.mark.parametrize("case", HEADS)
def test_loss_gradients_and_norm_are_those_of_the_whole_model(ranks, case):
    """4 heads, vocabulary 99, a fully padded row; with dropout the same elements are left out (T47)."""
    size, by_rank = ranks
    for variant in VARIANTS[size]:
        cut, mode, dropped = variant
        encoder = encoder_of(case)
        loss, gradients = results_of(encoder, draws() if dropped else None)
        wanted = full_gradients([gradients], case, 1, False)
        norm = global_norm(gradients, encoder.layouts, Mesh(), sharded=False).item()
        results = [one[case, cut, mode, dropped] for one in by_rank]
        assert {one for one, _, _ in results} == {results[0][0]}
        assert {one for _, _, one in results} == {results[0][2]}
        assert abs(results[0][0] - loss) < 1e-5 * loss
        assert abs(results[0][2] - norm) < 1e-5 * norm
        found = full_gradients([gradients for _, gradients, _ in results], case, size, cut)
        assert found.keys() == wanted.keys()
        for name, gradient in wanted.items():
            # What is added to all keys changes no probability.
            most = 1e-2 if name.endswith("self.key.bias") else gradient.abs().max()
            assert most > 1e-4, name
            assert (found[name] - gradient).abs().max() < 1e-5 * most, f"{name} {variant}"


@pytest.mark.parametrize("ranks", [2], indirect=True)
@pytest.mark.parametrize("case", HEADS)
def test_recomputing_gives_the_same_bits(ranks, case):
    for results in ranks[1]:
        for cut in (False, True):
            (_, kept, _), *others = (results[case, cut, mode, True] for mode in MODES)
            for _, again, _ in others:
                assert all(torch.equal(again[name], kept[name]) for name in kept)


def test_heads_of_rows_count_once(ranks):
    """Ranks after the first add nothing to what every rank computes alike."""
    size, by_rank = ranks
    for rank, results in enumerate(by_rank):
        gradients = results[("classification", *VARIANTS[size][0])][1]
        for name in ("pooler.weight", "classifier.weight"):
            assert (gradients[name].abs().max() > 0) == (rank == 0)


def refused(mesh):
    encoder = encoder_of("classification", region_of(mesh.tensor, True))
    try:
        encoder(torch.ones(1, 9, dtype=torch.long), torch.zeros(1, 9, dtype=torch.long), torch.tensor([9]))
    except RecipeError as error:
        return str(error)
    return "took it"


def test_tokens_that_do_not_share_out_are_refused():
    for message in run_ranks(2, refused, tp_size=2):
        assert "parallel.sequence_parallel: 9 tokens (rows x length) do not share out" in message
