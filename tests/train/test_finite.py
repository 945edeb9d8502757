import math
import weakref

import pytest
import torch
from tiny_training import batch_of, rows_of, stepper, tiny_decoder

from kitae.errors import TrainingError
from kitae.train import step
from kitae.train.step import Stepper


@pytest.fixture
def batch(tmp_path):
    return batch_of(rows_of(tmp_path / "p", 6), [5, 0, 3, 1], 2)


def failure(made, batch):
    before = {name: one.detach().clone() for name, one in made.objective.model.named_parameters()}
    with pytest.raises(TrainingError) as caught:
        made.update(batch, 0.01, step=7)
    assert caught.value.exit_code == 5
    for name, parameter in made.objective.model.named_parameters():
        assert torch.equal(parameter.nan_to_num(), before[name].nan_to_num()), name
    message = str(caught.value)
    assert message.startswith("step 7")
    assert "lower optimizer.learning_rate" in message
    assert "last checkpoint are kept" in message
    return message


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_bad_weight_is_named(batch, value, precision):
    decoder = tiny_decoder()
    with torch.no_grad():
        decoder.layers[1].attention.out.weight[2, 3] = value
    message = failure(stepper(decoder, precision), batch)
    assert "weight layers.1.attention.out.weight is not finite" in message


@pytest.mark.parametrize("place", ["layers.0.mlp", "layers.1", "norm"])
def test_the_first_bad_activation_is_named(batch, place):
    """Overflow in one micro-batch only: the message names the module, the micro-batch and its rows."""
    decoder = tiny_decoder()
    made = stepper(decoder)
    bad_ids = batch.micro_batches[1].input_ids

    def spoil(module, inputs, output):
        return output * math.inf if torch.equal(current[0], bad_ids) else output

    current = [None]
    decoder.register_forward_pre_hook(lambda module, inputs: current.__setitem__(0, inputs[0]))
    decoder.get_submodule(place).register_forward_hook(spoil)
    message = failure(made, batch)
    assert f"micro-batch 1, rows 3, 1: the output of {place} is not finite" in message


def test_a_loss_can_be_bad_though_the_states_are_finite(batch):
    decoder = tiny_decoder(tied=False)
    with torch.no_grad():
        decoder.norm.weight.fill_(1e18)
        decoder.head.weight.fill_(1e25)
    assert "the loss is not finite, though all hidden states are" in failure(stepper(decoder), batch)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_first_bad_gradient_is_named(batch, precision):
    """The gradient breaks on its way down layer 1: the MLP above is clean, the attention below is not."""
    decoder = tiny_decoder()
    decoder.layers[1].attention.register_forward_hook(lambda module, inputs, output: Breaks.apply(output))
    message = failure(stepper(decoder, precision), batch)
    assert "micro-batch 0, rows 5, 0: the gradient of layers.1.attention.out.weight is not finite" in message


class Breaks(torch.autograd.Function):
    """Passes a value on and makes its gradient NaN."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * math.nan


def test_a_norm_that_overflows(batch):
    decoder = tiny_decoder()
    decoder.embed.weight.register_hook(lambda gradient: gradient * 0 + 1e30)
    assert "finite, but their sum is not" in failure(stepper(decoder), batch)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_gradients_are_gone_before_the_search(batch, precision, monkeypatch):
    """It makes gradients of its own, for which there may be no room beside these."""
    decoder = tiny_decoder()
    with torch.no_grad():
        decoder.norm.weight[0] = math.nan
    made, alive = stepper(decoder, precision), []
    usual = Stepper.gradients

    def watched(self, *arguments):
        found = usual(self, *arguments)
        alive.extend(weakref.ref(one) for one in found.of_rows.values())
        return found

    def search(*arguments, **options):
        assert alive
        assert not any(one() is not None for one in alive)
        return TrainingError("searched")

    monkeypatch.setattr(Stepper, "gradients", watched)
    monkeypatch.setattr(step, "explain", search)
    with pytest.raises(TrainingError, match="searched"):
        made.update(batch, 0.01, step=1)
