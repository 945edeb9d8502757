"""torch.autocast around forward, against autograd's own formulas: products in bf16, gradients in fp32."""

import pytest
import torch
from cut_decoders import CASES, decoder_of, loss_and_gradients, loss_of
from test_kernels import EPS, plain_gate, plain_norm, tensors
from torch.nn import functional as F

from kitae.model import kernels
from kitae.train.loss import linear_cross_entropy, token_losses


def under_autocast(function, inputs):
    """Output, and gradients of the inputs, with the backward pass outside."""
    leaves = [one.detach().clone().requires_grad_() for one in inputs]
    with torch.autocast("cpu", torch.bfloat16):
        output = function(*leaves)
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(4)).to(output.dtype)
    return output, *torch.autograd.grad(output, leaves, upstream)


def assert_near(function, plain, inputs):
    for ours, theirs in zip(under_autocast(function, inputs), under_autocast(plain, inputs), strict=True):
        assert ours.dtype == theirs.dtype
        assert (ours.float() - theirs.float()).norm() < 0.02 * theirs.float().norm()


@pytest.mark.parametrize("recompute", [False, True])
def test_norm_linear(recompute):
    ours = lambda x, n, w, b: kernels.norm_linear(x, n, EPS, w, b, recompute)  # noqa: E731
    plain = lambda x, n, w, b: F.linear(plain_norm(x, n), w, b)  # noqa: E731
    assert_near(ours, plain, tensors((2, 5, 16), (16,), (12, 16), (12,)))


@pytest.mark.parametrize("recompute", [False, True])
def test_gated_linear(recompute):
    gate_up, weight, bias = tensors((2, 5, 24), (8, 12), (8,))
    inputs = (gate_up.bfloat16(), weight, bias)
    assert_near(lambda *a: kernels.gated_linear(*a, recompute), plain_gate, inputs)


def test_cross_entropy():
    states, weight = tensors((50, 24), (97, 24))
    targets = torch.arange(50) % 97
    ours = lambda x, w: linear_cross_entropy(x, w, targets, chunk_tokens=16)  # noqa: E731
    plain = lambda x, w: F.cross_entropy(F.linear(x, w), targets, reduction="sum")  # noqa: E731
    assert_near(ours, plain, (states, weight))
    with torch.autocast("cpu", torch.bfloat16):
        single = token_losses(states, weight, targets)
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.sum(), ours(states, weight), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("case", CASES)
def test_a_decoder(case, recompute):
    decoder = decoder_of(case)
    loss, exact = loss_and_gradients(decoder)
    exact = {name: gradient.clone() for name, gradient in exact.items()}
    decoder.recompute = recompute
    decoder.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = loss_of(decoder)
    rounded.backward()
    assert rounded.dtype == torch.float32
    assert loss != rounded.item()
    assert abs(rounded.item() - loss) < 0.01 * loss
    for name, parameter in decoder.named_parameters():
        assert parameter.grad.dtype == torch.float32
        assert (parameter.grad - exact[name]).norm() < 0.05 * exact[name].norm(), name


def test_products_are_made_in_the_tensors_dtype_without_it():
    x = torch.ones(2, dtype=torch.float16)
    assert kernels.product_dtype(x) == torch.float16
    assert kernels.product_dtype(x.to("meta")) == torch.float16
    with torch.autocast("cpu", torch.bfloat16):
        assert kernels.product_dtype(x) == torch.bfloat16
