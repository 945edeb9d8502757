import math

import pytest
import torch
from tiny_training import tiny_decoder

from kitae.recipe.training import OptimizerConfig
from kitae.train.optimizer import MOMENTS, AdamW, clip, global_norm
from kitae.train.precision import Bf16Weights, Fp32Weights

CONFIG = OptimizerConfig(learning_rate=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def parameters(seed=0):
    random = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=random).requires_grad_()
        for name, shape in (("matrix", (5, 4)), ("norm", (4,)))
    }


def give_gradients(masters, seed):
    random = torch.Generator().manual_seed(seed)
    for master in masters.values():
        master.grad = torch.randn(master.shape, generator=random)


def by_hand(weight, gradients, decay, rates):
    """The update as the paper writes it, in float64."""
    weight = weight.detach().double()
    first = second = torch.zeros_like(weight)
    for count, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        gradient = gradient.double()
        first = 0.9 * first + 0.1 * gradient
        second = 0.95 * second + 0.05 * gradient**2
        weight = weight * (1 - rate * decay)
        step = (first / (1 - 0.9**count)) / ((second / (1 - 0.95**count)).sqrt() + 1e-8)
        weight = weight - rate * step
    return weight


@pytest.mark.parametrize("fused", [True, False])
def test_updates_are_those_of_the_paper_and_norms_are_not_decayed(fused):
    masters = parameters()
    start = {name: master.detach().clone() for name, master in masters.items()}
    optimizer = AdamW(masters, {"matrix"}, CONFIG, fused=fused)
    seen = {name: [] for name in masters}
    rates = [0.01, 0.02, 0.005]
    for seed, rate in enumerate(rates):
        give_gradients(masters, seed)
        for name, master in masters.items():
            seen[name].append(master.grad.clone())
        optimizer.step(rate)
    for name, decay in (("matrix", 0.1), ("norm", 0.0)):
        wanted = by_hand(start[name], seen[name], decay, rates)
        assert (masters[name] - wanted).abs().max() < 1e-6


def test_state_moved_to_another_optimizer_goes_on_to_the_bit():
    masters = parameters()
    optimizer = AdamW(masters, {"matrix"}, CONFIG, fused=True)
    for seed in range(3):
        give_gradients(masters, seed)
        optimizer.step(0.01)
    twins = {name: master.detach().clone().requires_grad_() for name, master in masters.items()}
    other = AdamW(twins, {"matrix"}, CONFIG, fused=True)
    for kind in MOMENTS:
        for name, moment in other.moments(kind).items():
            assert moment.dtype == torch.float32
            moment.copy_(optimizer.moments(kind)[name])
    other.restore_step(3)
    for pair in ((optimizer, masters), (other, twins)):
        give_gradients(pair[1], 9)
        pair[0].step(0.01)
    assert all(torch.equal(masters[name], twins[name]) for name in masters)


def test_a_model_without_decayed_parameters():
    masters = {"norm": torch.ones(3, requires_grad=True)}
    optimizer = AdamW(masters, set(), CONFIG, fused=True)
    masters["norm"].grad = torch.ones(3)
    optimizer.step(0.01)
    assert torch.allclose(masters["norm"], torch.full((3,), 0.99))


def test_the_layout_decides_what_is_decayed():
    decoder = tiny_decoder(model_type="qwen2")
    kept = {layout.name for layout in decoder.layouts if not layout.decay}
    assert kept == {name for name, one in decoder.named_parameters() if one.dim() == 1}
    assert any(name.endswith("bias") for name in kept)


def test_global_norm():
    """T23: parts of norm 3 and 4 together have norm 5."""
    assert global_norm([torch.tensor([3.0]), torch.tensor([[0.0, 4.0]])]).item() == 5.0
    assert (
        global_norm([torch.tensor([3.0], dtype=torch.bfloat16), torch.tensor([4.0])]).dtype == torch.float32
    )


def test_global_norm_of_very_many_elements():
    ones = torch.full((4096, 2048), 0.001)
    assert global_norm([ones]).item() == pytest.approx(0.001 * math.sqrt(ones.numel()), rel=1e-6)


@pytest.mark.parametrize(("limit", "wanted"), [(1.0, [0.6, 0.8]), (5.0, [3.0, 4.0]), (None, [3.0, 4.0])])
def test_clipping(limit, wanted):
    gradients = [torch.tensor([3.0]), torch.tensor([4.0])]
    clip(gradients, 5.0, limit)
    assert torch.cat(gradients).tolist() == pytest.approx(wanted)


def test_small_updates_are_not_lost_below_bf16():
    """T46: weights at 1.0, 100 updates of -6e-4: fp32 master 0.94; rounded each time they stay at 1."""
    model = torch.nn.Linear(64, 64, bias=False)
    torch.nn.init.ones_(model.weight)
    weights = Bf16Weights(model)
    rounded = torch.ones(4096, dtype=torch.bfloat16)
    for _ in range(100):
        for master in weights.masters.values():
            master.sub_(6e-4)
        weights.publish()
        rounded = rounded - 6e-4
    assert rounded.unique().tolist() == [1.0]
    assert weights.masters["weight"].unique().item() == pytest.approx(0.94, abs=1e-5)
    assert model.weight.unique().item() == pytest.approx(0.94, abs=2e-3)


def test_bf16_gradients_are_summed_in_fp32_and_freed():
    model = torch.nn.Linear(1, 1, bias=False)
    weights = Bf16Weights(model)
    master = weights.masters["weight"]
    for gradient in (1.0, *[2.0**-9] * 4):
        model.weight.backward(torch.full((1, 1), gradient, dtype=torch.bfloat16))
        assert model.weight.grad is None
    assert master.grad.dtype == torch.float32
    assert master.grad.item() == 1 + 4 * 2.0**-9  # in bf16 each addition would be rounded away
    weights.clear_gradients()
    assert master.grad is None


def test_masters_start_from_the_weights_as_they_came():
    decoder = tiny_decoder()
    before = {name: one.detach().clone() for name, one in decoder.named_parameters()}
    weights = Bf16Weights(decoder)
    assert list(weights.masters) == list(before)
    for name, parameter in decoder.named_parameters():
        assert torch.equal(weights.masters[name], before[name])
        assert torch.equal(parameter, before[name].bfloat16())


def test_fp32_weights_are_the_model():
    model = torch.nn.Linear(2, 2).to(torch.bfloat16)
    weights = Fp32Weights(model)
    assert weights.masters["weight"] is model.weight
    assert model.weight.dtype == torch.float32
