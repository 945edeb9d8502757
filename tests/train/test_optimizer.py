import pytest
import torch
from tiny_training import tiny_decoder

from kitae.backend.group import ALONE
from kitae.parallel.gradients import plain_layouts
from kitae.parallel.mesh import Mesh
from kitae.parallel.shares import Shares
from kitae.recipe.training import OptimizerConfig
from kitae.train.optimizer import MOMENTS, OPTIMIZERS, clip
from kitae.train.precision import PRECISIONS

CONFIG = OptimizerConfig(learning_rate=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


class Two(torch.nn.Module):
    """A matrix, which is decayed, and a norm's weight, which is not."""

    def __init__(self, seed=0):
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.matrix = torch.nn.Parameter(torch.randn(5, 4, generator=random))
        self.norm = torch.nn.Parameter(torch.randn(4, generator=random))


def optimizer_of(model, precision="fp32", *, fused=True, name="adamw", seed=3, **changes):
    shares = Shares(plain_layouts(model), ALONE)
    weights = PRECISIONS[precision](model, shares)
    decayed = {name for name, one in model.named_parameters() if one.dim() > 1}
    config = CONFIG.model_copy(update=changes)
    made = OPTIMIZERS[name](weights, decayed, config, fused=fused, seed=seed, shares=shares, mesh=Mesh())
    return made, weights


def gradients_of(model, seed):
    random = torch.Generator().manual_seed(seed)
    return {name: torch.randn(one.shape, generator=random) for name, one in model.named_parameters()}


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
    model = Two()
    start = {name: one.detach().clone() for name, one in model.named_parameters()}
    optimizer, weights = optimizer_of(model, fused=fused)
    rates = [0.01, 0.02, 0.005]
    for seed, rate in enumerate(rates):
        optimizer.step(rate, gradients_of(model, seed))
    for name, decay in (("matrix", 0.1), ("norm", 0.0)):
        wanted = by_hand(start[name], [gradients_of(model, seed)[name] for seed in range(3)], decay, rates)
        assert (weights.masters[name] - wanted).abs().max() < 1e-6


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "autocast"])
def test_updates_are_torchs_to_the_bit(precision, fused):
    model, peer = Two(), Two()
    optimizer, weights = optimizer_of(model, precision, fused=fused)
    groups = [{"params": [peer.matrix]}, {"params": [peer.norm], "weight_decay": 0.0}]
    torchs = torch.optim.AdamW(
        groups, lr=0.01, betas=CONFIG.betas, eps=CONFIG.eps, weight_decay=0.1, fused=fused
    )
    for seed in range(4):
        gradients = gradients_of(model, seed)
        optimizer.step(0.01, gradients)
        for name, one in peer.named_parameters():
            one.grad = gradients[name]
        torchs.step()
    for name, one in peer.named_parameters():
        assert torch.equal(weights.masters[name], one)
        assert torch.equal(optimizer.moments("exp_avg_sq")[name], torchs.state[one]["exp_avg_sq"])


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_state_moved_to_another_optimizer_goes_on_to_the_bit(name, precision):
    model, twin = Two(), Two(seed=1)
    optimizer, weights = optimizer_of(model, precision, name=name)
    for seed in range(3):
        optimizer.step(0.01, gradients_of(model, seed))
    other, others = optimizer_of(twin, precision, name=name)
    targets = {"weights": others.masters} | {kind: other.moments(kind) for kind in MOMENTS}
    sources = {"weights": weights.masters} | {kind: optimizer.moments(kind) for kind in MOMENTS}
    with torch.no_grad():
        for kind, tensors in targets.items():
            for parameter, tensor in tensors.items():
                assert tensor.dtype == (torch.float32 if kind in MOMENTS else weights.masters["norm"].dtype)
                tensor.copy_(sources[kind][parameter])
    other.restore_step(3)
    for one in (optimizer, other):
        one.step(0.01, gradients_of(model, 9))
    assert all(torch.equal(weights.masters[name], others.masters[name]) for name in weights.masters)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_parameter_without_a_gradient_stays_as_it_is(name):
    model = Two()
    before = model.matrix.detach().clone()
    optimizer, _ = optimizer_of(model, name=name)
    optimizer.step(0.01, {"norm": torch.ones(4)})
    assert torch.equal(model.matrix, before)
    assert torch.allclose(model.norm, Two().norm - 0.01)


def test_a_model_without_decayed_parameters():
    model = torch.nn.Module()
    model.norm = torch.nn.Parameter(torch.ones(3))
    optimizer, _ = optimizer_of(model)
    optimizer.step(0.01, {"norm": torch.ones(3)})
    assert torch.allclose(model.norm, torch.full((3,), 0.99))


def test_the_layout_decides_what_is_decayed():
    decoder = tiny_decoder(model_type="qwen2")
    kept = {layout.name for layout in decoder.layouts if not layout.decay}
    assert kept == {name for name, one in decoder.named_parameters() if one.dim() == 1}
    assert any(name.endswith("bias") for name in kept)


@pytest.mark.parametrize(("limit", "wanted"), [(1.0, [0.6, 0.8]), (5.0, [3.0, 4.0]), (None, [3.0, 4.0])])
def test_clipping(limit, wanted):
    gradients = [torch.tensor([3.0]), torch.tensor([4.0])]
    clip(gradients, 5.0, limit)
    assert torch.cat(gradients).tolist() == pytest.approx(wanted)
