"""The encoder's written-out backward passes against autograd on the plain formulas."""

import pytest
import torch
from torch.nn import functional as F

from kitae.model import encoder_kernels as kernels


def tensors(*shapes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


def results(function, inputs):
    """Output and gradients of a function of `inputs`."""
    output = function(*inputs)
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(4)).to(output.dtype)
    return output, *torch.autograd.grad(output, [one for one in inputs if one is not None], upstream)


def assert_same(function, plain, inputs, **tolerance):
    for ours, theirs in zip(results(function, inputs), results(plain, inputs), strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, **tolerance)


TOLERANCE = {torch.float32: {"rtol": 1e-5, "atol": 1e-5}, torch.bfloat16: {"rtol": 0.02, "atol": 0.05}}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("bias", [True, False])
def test_enter_linear(dtype, bias):
    x, weight, one = tensors((10, 16), (24, 16), (24,), dtype=dtype)
    inputs = (x, weight, one if bias else None)
    assert_same(kernels.enter_linear, F.linear, inputs, **TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_gelu_linear(dtype, recompute, bias):
    inner, weight, one = tensors((10, 24), (16, 24), (16,), dtype=dtype)

    def ours(*given):
        return kernels.gelu_linear(*given, recompute=recompute)

    inputs = (inner, weight, one if bias else None)
    assert_same(ours, lambda x, w, b: F.linear(F.gelu(x), w, b), inputs, **TOLERANCE[dtype])


def test_recomputing_gelu_keeps_less_and_gives_the_same_bits():
    inner, weight, bias = tensors((64, 256), (16, 256), (16,))
    kept, again = (
        results(lambda *given, one=one: kernels.gelu_linear(*given, recompute=one), (inner, weight, bias))
        for one in (False, True)
    )
    assert all(torch.equal(one, other) for one, other in zip(kept, again, strict=True))
    sizes = []
    for one in (False, True):
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x, s=saved: s.append(x.numel()) or x, lambda x: x
        ):
            kernels.gelu_linear(inner, weight, bias, recompute=one)
        sizes.append(sum(saved))
    assert sizes[0] - sizes[1] == inner.numel()


@pytest.mark.parametrize("head", ["pretraining", "classification"])
def test_autocast_computes_products_in_bf16_and_sums_in_fp32(head):
    """Near the fp32 gradients, finite, in fp32; not the same, or nothing was cast."""
    from tiny_encoders import reference, rows, same_in_kitae

    encoder = same_in_kitae(reference(head))
    batch = rows(3, 20)

    def gradients():
        encoder.zero_grad()
        hidden = encoder(*batch)
        assert hidden.dtype == torch.float32
        logits = encoder.pair_logits(hidden) if head == "pretraining" else encoder.class_logits(hidden)
        assert logits.dtype == torch.float32
        logits.square().sum().backward()
        return {name: one.grad for name, one in encoder.named_parameters() if one.grad is not None}

    plain = gradients()
    with torch.autocast("cpu", torch.bfloat16):
        cast = gradients()
    for name, wanted in plain.items():
        assert cast[name].dtype == torch.float32
        if "qkv.bias" not in name:  # that of the keys is 0 but for rounding
            assert 0 < (cast[name] - wanted).norm() < 0.1 * wanted.norm(), name
