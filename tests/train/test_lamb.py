import math

import pytest
import torch
from cut_updates import RATES, assembled, full_values, updated
from test_optimizer import optimizer_of

from kitae.backend.group import ALONE
from kitae.parallel.gradients import plain_layouts
from kitae.parallel.mesh import Mesh
from kitae.parallel.shares import Shares
from kitae.train.lamb import TrustRatios


def test_one_step_by_hand():
    """Weights (3, 4), gradient (1, -1): Adam's first direction is (1, -1), with decay 0.1 (1.3, -0.6).

    The ratio is 5 / sqrt(1.3^2 + 0.6^2), so at rate 0.01 the weights become 3 - 0.01 * 1.3 * ratio and so on.
    """
    model = torch.nn.Linear(2, 1, bias=False)
    model.weight.data = torch.tensor([[3.0, 4.0]])
    optimizer, _ = optimizer_of(model, name="lamb")
    optimizer.step(0.01, {"weight": torch.tensor([[1.0, -1.0]])})
    ratio = 5 / math.hypot(1.3, -0.6)
    assert model.weight.tolist()[0] == pytest.approx([3 - 0.013 * ratio, 4 + 0.006 * ratio], abs=1e-6)


@pytest.mark.parametrize(
    ("weight", "update", "ratio"),
    [([0.0, 0.0], [1.0, 2.0], 1.0), ([3.0, 4.0], [0.0, 0.0], 1.0), ([30.0, 40.0], [0.0, 2.0], 25.0)],
)
def test_the_ratio_is_one_where_a_norm_is_zero_and_by_itself_has_no_bound(weight, update, ratio):
    model = torch.nn.Linear(2, 1, bias=False)
    ratios = TrustRatios({"weight"}, Shares(plain_layouts(model), ALONE), Mesh())
    scaled = torch.tensor([update])
    ratios.apply({"weight": torch.tensor([weight])}, {"weight": scaled})
    assert scaled.tolist()[0] == pytest.approx([ratio * one for one in update])


@pytest.mark.parametrize(("update", "ratio"), [([0.0, 2.0], 1.0), ([60.0, 80.0], 0.5)])
def test_the_recipe_can_bound_the_ratio(update, ratio):
    """As the vendor's BERT does, at 1."""
    model = torch.nn.Linear(2, 1, bias=False)
    ratios = TrustRatios({"weight"}, Shares(plain_layouts(model), ALONE), Mesh(), most=1.0)
    scaled = torch.tensor([update])
    ratios.apply({"weight": torch.tensor([[30.0, 40.0]])}, {"weight": scaled})
    assert scaled.tolist()[0] == pytest.approx([ratio * one for one in update])


def test_a_step_keeps_to_the_bound():
    """The direction of `test_one_step_by_hand`, whose ratio would be 3.5."""
    model = torch.nn.Linear(2, 1, bias=False)
    model.weight.data = torch.tensor([[3.0, 4.0]])
    optimizer, _ = optimizer_of(model, name="lamb", max_trust_ratio=1.0)
    optimizer.step(0.01, {"weight": torch.tensor([[1.0, -1.0]])})
    assert model.weight.tolist()[0] == pytest.approx([3 - 0.013, 4 + 0.006], abs=1e-6)


def reference(weight, gradients, decays):
    """LAMB as the paper writes it, in float64, for one full tensor."""
    weight = weight.double()
    first = second = torch.zeros_like(weight)
    for count, (gradient, rate) in enumerate(zip(gradients, RATES, strict=True), 1):
        first = 0.9 * first + 0.1 * gradient.double()
        second = 0.999 * second + 0.001 * gradient.double() ** 2
        update = (first / (1 - 0.9**count)) / ((second / (1 - 0.999**count)).sqrt() + 1e-6)
        if decays:
            update = update + 0.01 * weight
            update = update * weight.norm() / update.norm()
        weight = weight - rate * update
    return weight


def test_each_full_tensor_is_updated_as_the_paper_says():
    """Query, key and value weights, which are one parameter, have ratios of their own; norms have none."""
    found = assembled([updated(Mesh(), "lamb", "fp32", False)])
    gradients = [full_values(f"gradient {step}") for step in range(len(RATES))]
    for name, start in full_values("weights").items():
        decays = start.dim() > 1
        wanted = reference(start, [one[name] for one in gradients], decays)
        assert (found[name] - wanted).abs().max() < 2e-6 * start.abs().max(), name
