"""Cross-entropy over a vocabulary that is cut over real processes."""

from typing import NamedTuple

import pytest
import torch
from ranks import run_ranks
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from kitae.parallel.cuts import padded_vocabulary
from kitae.parallel.region import Vocabulary
from kitae.train.loss import IGNORE, linear_cross_entropy, token_losses

HIDDEN, TOKENS, CHUNK = 24, 50, 8
FP32, BF16 = torch.float32, torch.bfloat16
CASES = {
    2: [(99, 0.3, FP32), (999, 0.3, FP32), (99, 1.1, FP32), (99, 0.3, BF16)],
    8: [(99, 0.3, FP32), (3, 0.3, FP32)],
}
"""(vocabulary, share of tokens without a target, dtype), by the tensor-parallel size."""


class Result(NamedTuple):
    loss: float
    states_grad: torch.Tensor
    weight_grad: torch.Tensor
    token_losses: torch.Tensor
    real: int
    exchanged: dict[str, int]
    largest: int


def problem(vocabulary, ignored=0.3):
    random = torch.Generator().manual_seed(0)
    states = torch.randn(TOKENS, HIDDEN, generator=random)
    weight = torch.randn(vocabulary, HIDDEN, generator=random) * 0.5
    targets = torch.randint(0, vocabulary, (TOKENS,), generator=random)
    targets[torch.rand(TOKENS, generator=random) < ignored] = IGNORE
    return states, weight, targets


class Largest(TorchDispatchMode):
    """Remembers the most elements in any tensor that an operation made."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.elements = max(self.elements, result.numel())
        return result


def own_part(mesh, weight):
    """This rank's rows of the head, padded with rows that would change everything if they were looked at."""
    rows = padded_vocabulary(len(weight), mesh.tensor.size) // mesh.tensor.size
    first = min(mesh.tensor.rank * rows, len(weight))
    part = torch.full((rows, HIDDEN), 1e3)
    real = weight[first : first + rows]
    part[: len(real)] = real
    return Vocabulary(mesh.tensor, first, len(real)), part


def cut_loss(mesh, size, ignored, dtype):
    states, weight, targets = problem(size, ignored)
    vocabulary, part = own_part(mesh, weight)
    states, part = (one.to(dtype).requires_grad_() for one in (states, part))
    before = mesh.meter.bytes_in.copy()
    options = {"chunk_tokens": CHUNK, "vocabulary": vocabulary}
    with Largest() as made:
        loss = linear_cross_entropy(states, part, targets, scale=0.1, **options)
        loss.backward()
    exchanged = dict(mesh.meter.bytes_in - before)
    single = token_losses(states.detach(), part.detach(), targets, **options)
    return Result(loss.item(), states.grad, part.grad, single, vocabulary.real, exchanged, made.elements)


def all_losses(mesh):
    return {case: cut_loss(mesh, *case) for case in CASES[mesh.tensor.size]}


@pytest.fixture(scope="module")
def results():
    """By tensor-parallel size and case: what each rank gives."""
    by_rank = {size: run_ranks(size, all_losses, tp_size=size) for size in CASES}
    return {
        (size, *case): [one[case] for one in by_rank[size]] for size, cases in CASES.items() for case in cases
    }


def reference(size, ignored, dtype=FP32):
    states, weight, targets = problem(size, ignored)
    states, weight = (one.to(dtype).double().requires_grad_() for one in (states, weight))
    losses = F.cross_entropy(states @ weight.t(), targets, ignore_index=IGNORE, reduction="none")
    (losses.sum() * 0.1).backward()
    return losses.detach(), states.grad, weight.grad


@pytest.mark.parametrize(("tp_size", "size", "padded"), [(2, 99, 100), (8, 99, 104), (8, 3, 8)])
def test_it_is_the_loss_of_the_whole_vocabulary(results, tp_size, size, padded):
    """T12: vocabulary 99 on 2 and 8 ranks is 100 and 104 rows; also ranks that hold nothing but padding."""
    ranks = results[tp_size, size, 0.3, FP32]
    losses, states_grad, weight_grad = reference(size, 0.3)
    assert sum(len(one.weight_grad) for one in ranks) == padded
    assert len({one.loss for one in ranks}) == 1
    assert abs(ranks[0].loss - losses.sum().item() * 0.1) < 1e-6 * losses.sum().item()
    assert (sum(one.states_grad for one in ranks) - states_grad).abs().max() < 1e-6
    assert (torch.cat([one.weight_grad[: one.real] for one in ranks]) - weight_grad).abs().max() < 1e-6
    for one in ranks:
        assert (one.weight_grad[one.real :] == 0).all()
        assert (one.token_losses - losses).abs().max() < 2e-6


def test_logits_are_never_gathered(results):
    """What the ranks exchange is three numbers a target; what each makes is its own part of a chunk."""
    targets = problem(999)[2]
    count = int((targets != IGNORE).sum())
    for one in results[2, 999, 0.3, FP32]:
        assert one.exchanged == {"all_reduce": 3 * 4 * count}
        assert one.largest == max(500 * HIDDEN, CHUNK * 500)


def test_nothing_to_predict(results):
    for one in results[2, 99, 1.1, FP32]:
        assert one.loss == 0.0
        assert not one.states_grad.any()
        assert not one.weight_grad.any()


def test_bf16(results):
    ranks = results[2, 99, 0.3, BF16]
    losses, states_grad, weight_grad = reference(99, 0.3, BF16)
    assert abs(ranks[0].loss - losses.sum().item() * 0.1) < 5e-3 * losses.sum().item() * 0.1
    weight = torch.cat([one.weight_grad[: one.real] for one in ranks]).double()
    states = sum(one.states_grad.double() for one in ranks)
    for found, wanted in ((states, states_grad), (weight, weight_grad)):
        assert (found - wanted).norm() < 0.02 * wanted.norm()
