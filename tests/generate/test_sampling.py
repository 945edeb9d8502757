import torch

from kitae.generate.sampling import Sampler

LOGITS = torch.tensor([0.1, 0.5, 0.05, 0.3, 0.05]).log()


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


def test_top_k_comes_before_top_p():
    assert_probabilities(Sampler(1.0, top_k=2, top_p=0.6), [0, 1, 0, 0, 0])


def test_draws_follow_the_probabilities():
    sampler = Sampler(1.0, seed=5)
    counts = torch.bincount(
        torch.tensor([sampler.choose(LOGITS, number) for number in range(2000)]), minlength=5
    )
    torch.testing.assert_close(counts / 2000, LOGITS.exp(), rtol=0, atol=0.04)


def test_greedy_takes_the_most_likely():
    assert Sampler().choose(LOGITS.bfloat16(), 0) == 1


def test_the_smallest_temperature_takes_the_likeliest():
    probabilities = Sampler(temperature=1e-42).probabilities(torch.tensor([30.0, 40.0, 39.0]))
    assert probabilities.tolist() == [0.0, 1.0, 0.0]
