"""The loss with fixed shapes against the one that takes the tokens with a target alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.train import loss, static_loss

IGNORED = -100


def case(tokens, with_bias, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    hidden = torch.randn(tokens, 8, dtype=dtype, requires_grad=True)
    weight = torch.randn(13, 8, dtype=dtype, requires_grad=True)
    bias = torch.randn(13, dtype=dtype, requires_grad=True) if with_bias else None
    targets = torch.randint(0, 13, (tokens,))
    targets[torch.rand(tokens) < 0.4] = IGNORED
    return hidden, weight, bias, targets


def gradients(function, hidden, weight, bias, targets, **options):
    found = function(hidden, weight, targets, bias=bias, **options)
    inputs = [one for one in (hidden, weight, bias) if one is not None]
    return found, torch.autograd.grad(3 * found, inputs)


@given(
    tokens=st.integers(1, 20),
    chunk=st.integers(1, 24),
    with_bias=st.booleans(),
    seed=st.integers(0, 9),
)
@settings(max_examples=25, deadline=None)
def test_loss_and_gradients_are_the_same(tokens, chunk, with_bias, seed):
    given_ = case(tokens, with_bias, seed=seed)
    wanted = gradients(loss.linear_cross_entropy, *given_, scale=1 / 7, chunk_tokens=chunk)
    scale = torch.full((1,), 1 / 7)[0]
    found = gradients(static_loss.linear_cross_entropy, *given_, scale=scale, chunk_tokens=chunk)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 4, 512])
def test_scores_are_the_same(chunk):
    hidden, weight, bias, targets = case(11, with_bias=True)
    wanted = loss.token_scores(hidden, weight, targets, bias=bias, chunk_tokens=chunk)
    found = static_loss.token_scores(hidden, weight, targets, bias=bias, chunk_tokens=chunk)
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


def test_without_any_target_there_is_no_loss_and_no_gradient():
    """What the micro-batches of a ragged last update consist of."""
    hidden, weight, bias, _ = case(6, with_bias=True)
    nothing = torch.full((6,), IGNORED)
    found, slopes = gradients(static_loss.linear_cross_entropy, hidden, weight, bias, nothing)
    assert found.item() == 0
    assert all(not one.any() for one in slopes)
    losses, right = static_loss.token_scores(hidden, weight, nothing, bias=bias)
    assert not losses.any()
    assert not right.any()


def test_products_are_in_the_dtype_of_the_weights():
    given_ = case(12, with_bias=False, dtype=torch.bfloat16)
    wanted = gradients(loss.linear_cross_entropy, *given_, chunk_tokens=5)
    found = gradients(static_loss.linear_cross_entropy, *given_, chunk_tokens=5)
    assert [one.dtype for one in found[1]] == [torch.bfloat16] * 2
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)
