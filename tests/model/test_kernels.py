"""The written-out backward passes against autograd on the plain formulas, and against finite differences."""

import pytest
import torch
from torch.nn import functional as F

from kitae.model import kernels

EPS = 1e-5


def plain_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


def plain_gate(gate_up, weight, bias):
    gate, up = gate_up.chunk(2, -1)
    return F.linear(F.silu(gate) * up, weight, bias)


def plain_rotate(x, cosine, sine):
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


def tensors(*shapes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


def results(function, inputs):
    """Output and gradients of a function of `inputs`."""
    output = function(*inputs)
    wrt = [one for one in inputs if one is not None and one.requires_grad]
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(4)).to(output.dtype)
    return output, *torch.autograd.grad(output, wrt, upstream)


def assert_same(function, plain, inputs, **tolerance):
    for ours, theirs in zip(results(function, inputs), results(plain, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, **tolerance)


def test_rms_norm():
    x, weight = tensors((2, 5, 16), (16,))
    assert_same(lambda *a: kernels.rms_norm(*a, EPS), plain_norm, (x, weight), rtol=1e-5, atol=1e-5)


def test_rms_norm_of_a_strided_view():
    x, weight = tensors((2, 5, 3, 16), (8,))
    function = lambda x, w: kernels.rms_norm(x[:, :, :2, 4:12], w, EPS)  # noqa: E731
    assert_same(function, lambda x, w: plain_norm(x[:, :, :2, 4:12], w), (x, weight), rtol=1e-5, atol=1e-5)


def test_rms_norm_of_zeros_is_zero():
    x = torch.zeros(2, 8, requires_grad=True)
    y = kernels.rms_norm(x, torch.ones(8), EPS)
    y.sum().backward()
    assert (y == 0).all()
    assert x.grad.isfinite().all()


def test_rms_norm_in_bf16_computes_in_fp32():
    x, weight = tensors((4, 64), (64,), dtype=torch.bfloat16)
    ours = results(lambda *a: kernels.rms_norm(*a, EPS), (x, weight))
    exact = results(plain_norm, [one.detach().float().requires_grad_() for one in (x, weight)])
    for one, other in zip(ours, exact, strict=True):
        assert one.dtype == torch.bfloat16
        torch.testing.assert_close(one.float(), other, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_norm_linear(recompute, with_bias):
    x, norm, weight, bias = tensors((2, 5, 16), (16,), (12, 16), (12,))
    inputs = (x, norm, weight, bias if with_bias else None)
    function = lambda x, n, w, b: kernels.norm_linear(x, n, EPS, w, b, recompute)  # noqa: E731
    assert_same(function, lambda x, n, w, b: F.linear(plain_norm(x, n), w, b), inputs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_gated_linear(recompute, with_bias):
    gate_up, weight, bias = tensors((2, 5, 24), (8, 12), (8,))
    inputs = (gate_up, weight, bias if with_bias else None)
    function = lambda *a: kernels.gated_linear(*a, recompute)  # noqa: E731
    assert_same(function, plain_gate, inputs, rtol=1e-4, atol=1e-5)


def test_rotate():
    (x,) = tensors((2, 5, 3, 8))
    angles = torch.rand(2, 5, 1, 4) * 6
    function = lambda x: kernels.rotate(x, angles.cos(), angles.sin())  # noqa: E731
    assert_same(function, lambda x: plain_rotate(x, angles.cos(), angles.sin()), (x,), rtol=1e-5, atol=1e-6)


def test_rotate_keeps_bf16():
    (x,) = tensors((1, 2, 1, 8), dtype=torch.bfloat16)
    assert kernels.rotate(x, torch.ones(1, 2, 1, 4), torch.zeros(1, 2, 1, 4)).dtype == torch.bfloat16


def test_rotation_is_undone_by_the_opposite_angle():
    (x,) = tensors((2, 5, 3, 8))
    angles = torch.rand(2, 5, 1, 4) * 6
    there = kernels.rotate(x, angles.cos(), angles.sin())
    torch.testing.assert_close(kernels.rotate(there, angles.cos(), -angles.sin()), x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_by_finite_differences(recompute):
    x, weight, bias = tensors((3, 8), (6, 4), (6,), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda *a: kernels.gated_linear(*a, recompute), (x, weight, bias))
    angles = torch.rand(2, 3, 1, 2, dtype=torch.float64)
    (heads,) = tensors((2, 3, 2, 4), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: kernels.rotate(x, angles.cos(), angles.sin()), (heads,))
