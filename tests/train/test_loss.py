import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from kitae.train.loss import IGNORE, linear_cross_entropy, token_losses


def problem(tokens=50, hidden=24, vocabulary=97, ignored=0.3, dtype=torch.float32, seed=0):
    random = torch.Generator().manual_seed(seed)
    states = torch.randn(tokens, hidden, generator=random).to(dtype).requires_grad_()
    weight = (torch.randn(vocabulary, hidden, generator=random) * 0.5).to(dtype).requires_grad_()
    targets = torch.randint(0, vocabulary, (tokens,), generator=random)
    targets[torch.rand(tokens, generator=random) < ignored] = IGNORE
    return states, weight, targets


def reference(states, weight, targets, scale):
    states, weight = (tensor.detach().double().requires_grad_() for tensor in (states, weight))
    loss = F.cross_entropy(states @ weight.t(), targets, ignore_index=IGNORE, reduction="sum") * scale
    loss.backward()
    return loss.detach(), states.grad, weight.grad


@pytest.mark.parametrize("chunk", [1, 7, 16, 50, 512])
@pytest.mark.parametrize("ignored", [0.0, 0.3])
def test_values_and_gradients_are_those_of_cross_entropy(chunk, ignored):
    states, weight, targets = problem(ignored=ignored)
    scale = 1 / int((targets != IGNORE).sum())
    loss = linear_cross_entropy(states, weight, targets, scale=scale, chunk_tokens=chunk)
    loss.backward()
    value, states_grad, weight_grad = reference(states, weight, targets, scale)
    assert abs(loss.item() - value.item()) < 1e-6
    assert (states.grad - states_grad).abs().max() < 1e-6
    assert (weight.grad - weight_grad).abs().max() < 1e-6


@settings(deadline=None, max_examples=40)
@given(
    tokens=st.integers(1, 40),
    vocabulary=st.integers(2, 70),
    chunk=st.integers(1, 45),
    ignored=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 10**6),
)
def test_any_shape_and_chunk(tokens, vocabulary, chunk, ignored, seed):
    states, weight, targets = problem(tokens, 8, vocabulary, ignored, seed=seed)
    loss = linear_cross_entropy(states, weight, targets, scale=0.1, chunk_tokens=chunk)
    loss.backward()
    value, states_grad, weight_grad = reference(states, weight, targets, 0.1)
    torch.testing.assert_close(loss.double(), value, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(states.grad.double(), states_grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(weight.grad.double(), weight_grad, rtol=1e-4, atol=1e-6)


def test_nothing_to_predict_is_zero_loss_and_zero_gradient():
    states, weight, targets = problem(ignored=1.1)
    loss = linear_cross_entropy(states, weight, targets, scale=1.0, chunk_tokens=8)
    loss.backward()
    assert loss.item() == 0.0
    assert not states.grad.any()
    assert not weight.grad.any()
    assert not token_losses(states, weight, targets).any()


def test_ignored_rows_may_hold_anything():
    """T47: what stands in a padded position reaches neither loss nor gradient, even if not a number."""
    states, weight, targets = problem()
    broken = states.detach().clone()
    broken[targets == IGNORE] = float("nan")
    broken.requires_grad_()
    loss = linear_cross_entropy(broken, weight, targets, chunk_tokens=8)
    loss.backward()
    assert loss.item() == linear_cross_entropy(states, weight, targets, chunk_tokens=8).item()
    assert weight.grad.isfinite().all()
    assert not broken.grad[targets == IGNORE].any()


def test_bf16_takes_the_softmax_in_fp32():
    """T47: bf16 states and weight; only the products are rounded, the loss and its sums are fp32."""
    states, weight, targets = problem(tokens=300, vocabulary=1000, dtype=torch.bfloat16)
    scale = 1 / int((targets != IGNORE).sum())
    loss = linear_cross_entropy(states, weight, targets, scale=scale, chunk_tokens=64)
    loss.backward()
    value, states_grad, weight_grad = reference(states, weight, targets, scale)
    assert loss.dtype == torch.float32
    assert states.grad.dtype == weight.grad.dtype == torch.bfloat16
    assert abs(loss.item() - value.item()) < 5e-3 * value.item()
    for found, wanted in ((states.grad, states_grad), (weight.grad, weight_grad)):
        assert (found.double() - wanted).norm() < 0.02 * wanted.norm()


def test_large_logits_do_not_overflow():
    states, weight, targets = problem(ignored=0.0)
    loss = linear_cross_entropy(states * 1000, weight, targets, scale=1e-3)
    loss.backward()
    assert loss.isfinite()
    assert weight.grad.isfinite().all()


def test_the_slope_from_above_is_applied():
    states, weight, targets = problem()
    (3 * linear_cross_entropy(states, weight, targets, scale=0.5)).backward()
    _, states_grad, weight_grad = reference(states, weight, targets, 1.5)
    assert (states.grad - states_grad).abs().max() < 2e-6
    assert (weight.grad - weight_grad).abs().max() < 1e-5


def test_losses_of_single_tokens():
    states, weight, targets = problem()
    wanted = F.cross_entropy(states @ weight.t(), targets, ignore_index=IGNORE, reduction="none")
    found = token_losses(states, weight, targets, chunk_tokens=9)
    assert (found - wanted).abs().max() < 2e-6
    assert not found.requires_grad
    assert not found[targets == IGNORE].any()


class Largest(TorchDispatchMode):
    """Remembers the most elements in any tensor that an operation made."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.elements = max(self.elements, result.numel())
        return result


@pytest.mark.parametrize("chunk", [4, 16])
def test_all_logits_never_exist(chunk):
    states, weight, targets = problem(tokens=400, hidden=4, vocabulary=1000)
    weight_elements, chunk_elements = weight.numel(), chunk * 1000
    with Largest() as made:
        linear_cross_entropy(states, weight, targets, chunk_tokens=chunk).backward()
        token_losses(states, weight, targets, chunk_tokens=chunk)
    assert made.elements == max(weight_elements, chunk_elements)


def test_nothing_of_the_size_of_logits_is_kept_for_the_backward_pass():
    states, weight, targets = problem(tokens=400, hidden=4, vocabulary=1000)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: kept.append(tensor.numel()), lambda none: none
    ):
        linear_cross_entropy(states, weight, targets, chunk_tokens=16)
    assert max(kept, default=0) <= weight.numel()
