import math

import numpy as np
import pytest
import torch

from kitae.errors import RecipeError
from kitae.generate.sampling import Sampler

LOGITS = torch.tensor([0.1, 0.5, 0.05, 0.3, 0.05]).log()
DRAWS = 4000


def assert_probabilities(sampler, expected):
    torch.testing.assert_close(
        sampler.probabilities(LOGITS), torch.tensor(expected, dtype=torch.float32), rtol=1e-5, atol=1e-6
    )


def test_temperature_one_is_the_softmax():
    assert_probabilities(Sampler(1.0), [0.1, 0.5, 0.05, 0.3, 0.05])


def test_temperature_sharpens():
    squares = torch.tensor([0.01, 0.25, 0.0025, 0.09, 0.0025])
    assert_probabilities(Sampler(0.5), (squares / squares.sum()).tolist())


def test_top_k_keeps_the_k_most_likely():
    assert_probabilities(Sampler(1.0, top_k=2), [0, 0.625, 0, 0.375, 0])
    assert_probabilities(Sampler(1.0, top_k=9), [0.1, 0.5, 0.05, 0.3, 0.05])


def test_top_p_keeps_the_fewest_that_hold_the_share():
    assert_probabilities(Sampler(1.0, top_p=0.79), [0, 0.625, 0, 0.375, 0])
    assert_probabilities(Sampler(1.0, top_p=0.81), [0.1 / 0.9, 0.5 / 0.9, 0, 0.3 / 0.9, 0])
    assert_probabilities(Sampler(1.0, top_p=0.2), [0, 1, 0, 0, 0])
    assert_probabilities(Sampler(1.0, top_p=1.0), [0.1, 0.5, 0.05, 0.3, 0.05])


def test_min_p_keeps_those_near_the_likeliest():
    assert_probabilities(Sampler(1.0, min_p=0.3), [0, 0.625, 0, 0.375, 0])
    assert_probabilities(Sampler(1.0, min_p=0.15), [0.1 / 0.9, 0.5 / 0.9, 0, 0.3 / 0.9, 0])
    assert_probabilities(Sampler(1.0, min_p=1.0), [0, 1, 0, 0, 0])


def test_top_k_comes_before_top_p():
    assert_probabilities(Sampler(1.0, top_k=2, top_p=0.6), [0, 1, 0, 0, 0])


def exact(logits, temperature=1.0, top_k=None, top_p=None, min_p=None):
    """The distribution by its definition, in double precision and without torch."""
    shares = np.exp(np.array(logits, np.float64) / temperature)
    shares /= shares.sum()
    order = np.argsort(-shares, kind="stable")
    if top_k is not None:
        shares[order[top_k:]] = 0
        shares /= shares.sum()
    if top_p is not None:
        before = np.concatenate(([0], np.cumsum(shares[order])[:-1]))
        shares[order[before >= top_p]] = 0
    if min_p is not None:
        shares[shares < min_p * shares.max()] = 0
    return shares / shares.sum()


@pytest.mark.parametrize("size", [40, 3000])
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.8},
        {"top_k": 7},
        {"top_p": 0.7},
        {"min_p": 0.2},
        {"temperature": 1.5, "top_k": 12, "top_p": 0.9, "min_p": 0.1},
    ],
)
def test_draws_follow_the_exact_distribution(options, size):
    """The seed is fixed, so that it passes always or never."""
    logits = torch.randn(size, generator=torch.Generator().manual_seed(5)) * 2
    wanted = exact(logits.tolist(), **options)
    sampler = Sampler(**{"temperature": 1.0, **options}, seed=11)
    torch.testing.assert_close(
        sampler.probabilities(logits).double(), torch.from_numpy(wanted), atol=1e-6, rtol=1e-4
    )
    counts = counted(sampler, logits)
    assert not counts[wanted == 0].any()
    assert is_likely(counts, wanted)


@pytest.mark.parametrize("size", [40, 3000])
@pytest.mark.parametrize("temperature", [0.85, 1.2])
def test_the_chi_squared_test_tells_near_distributions_apart(temperature, size):
    """That it has power: another temperature is found."""
    logits = torch.randn(size, generator=torch.Generator().manual_seed(5)) * 2
    assert not is_likely(counted(Sampler(temperature, seed=11), logits), exact(logits.tolist()))


def counted(sampler, logits):
    """How often each token is drawn."""
    rows = logits.expand(DRAWS // 40, -1)
    drawn = torch.cat([sampler.choose(rows, number, range(len(rows))) for number in range(40)])
    return np.bincount(drawn.numpy(), minlength=len(logits))


def is_likely(counts, wanted):
    """A chi-squared test at 1 in 10,000."""
    likely = wanted * DRAWS >= 5  # rarer ones go together
    found = [*counts[likely], counts[~likely].sum()]
    due = [*wanted[likely] * DRAWS, wanted[~likely].sum() * DRAWS]
    statistic = sum((one - other) ** 2 / other for one, other in zip(found, due, strict=True) if other > 0)
    freedom = sum(other > 0 for other in due) - 1
    # Wilson and Hilferty's quantile, at 3.72 standard deviations.
    limit = freedom * (1 - 2 / (9 * freedom) + 3.72 * math.sqrt(2 / (9 * freedom))) ** 3
    return statistic < limit


def test_draws_depend_on_seed_sample_and_number_alone():
    rows = torch.randn(50, generator=torch.Generator().manual_seed(1)).expand(8, -1)
    first = Sampler(2.0, seed=3).choose(rows, 0, range(8))
    torch.manual_seed(99)
    assert torch.equal(Sampler(2.0, seed=3).choose(rows, 0, range(8)), first)
    assert torch.equal(Sampler(2.0, seed=3).choose(rows[:3], 0, range(5, 8)), first[5:])
    assert len(set(first.tolist())) > 1
    assert not torch.equal(Sampler(2.0, seed=4).choose(rows, 0, range(8)), first)
    assert not torch.equal(Sampler(2.0, seed=3).choose(rows, 1, range(8)), first)


@pytest.mark.parametrize("options", [{}, {"top_p": 0.999999}, {"min_p": 1e-30}, {"top_k": 99}])
def test_what_has_no_token_is_never_drawn_at_any_temperature(options):
    """T-row of cases.md 20: padded rows of a vocabulary are sampled."""
    logits = torch.zeros(64)
    logits[40:] = float("-inf")
    sampler = Sampler(100.0, **options)
    drawn = torch.cat([sampler.choose(logits.expand(20, -1), number, range(20)) for number in range(50)])
    assert drawn.max() < 40
    assert len(set(drawn.tolist())) == 40


@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e30, 1e300])
def test_no_temperature_is_too_small_or_too_large(temperature):
    logits = torch.tensor([[1e4, -1e4, 9e3, float("-inf")]])
    drawn = Sampler(temperature).choose(logits, 0, [0])
    assert int(drawn) in ({0} if temperature < 1 else {0, 1, 2})


def test_greedy_takes_the_first_of_the_likeliest():
    assert Sampler().choose(torch.tensor([[0.0, 2.0, 2.0], [3.0, 1.0, 2.0]]), 0, [0, 1]).tolist() == [1, 0]


def test_penalty_is_that_of_ctrl():
    """Seen tokens: positive logits are divided by it, negative ones multiplied."""
    seen = torch.tensor([[True, True, False, False]])
    logits = torch.tensor([[2.0, -1.0, 1.5, -3.0]])
    sampler = Sampler(repetition_penalty=2.0)
    assert sampler.choose(logits, 0, [0], seen).tolist() == [2]
    assert Sampler().choose(logits, 0, [0], seen).tolist() == [0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": -0.1}, "temperature: -0.1"),
        ({"temperature": float("nan")}, "temperature: nan"),
        ({"temperature": float("inf")}, "temperature: inf"),
        ({"top_k": 0}, "top_k: 0"),
        ({"top_p": 0.0}, "top_p: 0.0"),
        ({"top_p": 1.5}, "top_p: 1.5"),
        ({"min_p": 0.0}, "min_p: 0.0"),
        ({"min_p": 1.1}, "min_p: 1.1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty: 0.0"),
        ({"repetition_penalty": float("inf")}, "repetition_penalty: inf"),
    ],
)
def test_what_makes_no_sense_is_named(changes, message):
    with pytest.raises(RecipeError, match=message):
        Sampler(**changes)
