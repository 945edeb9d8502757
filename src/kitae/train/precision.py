"""In which dtype the weights compute, and where their gradients are summed and their updates kept.

fp32: the model's own weights are updated, autograd sums their gradients.
bf16: the model computes in bf16; fp32 master weights are updated and copied down after each update. The bf16
gradient of each micro-batch is added to an fp32 sum as soon as it is complete, and freed. So updates smaller
than the spacing of bf16 numbers are not lost (pytorch/pytorch#120376).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn


class Weights(Protocol):
    """The fp32 truth about a model's parameters."""

    masters: dict[str, torch.Tensor]
    """fp32 tensors by parameter name; `.grad` is the fp32 sum over the micro-batches of an update."""

    def clear_gradients(self) -> None:
        """Forget the gradients."""
        ...

    def publish(self) -> None:
        """Give the model what the masters hold."""
        ...


class Fp32Weights:
    """The model's parameters are the masters."""

    def __init__(self, model: nn.Module) -> None:
        for parameter in model.parameters():
            parameter.data = parameter.data.float()
        self.masters: dict[str, torch.Tensor] = dict(model.named_parameters())

    def clear_gradients(self) -> None:
        """Free the gradients: the first micro-batch of an update then sets instead of adds."""
        for master in self.masters.values():
            master.grad = None

    def publish(self) -> None:
        """Nothing to do: the model computes with the masters."""


class Bf16Weights:
    """bf16 parameters below fp32 masters; turns the model's parameters into bf16."""

    def __init__(self, model: nn.Module) -> None:
        self.masters: dict[str, torch.Tensor] = {}
        self._pairs: list[tuple[nn.Parameter, torch.Tensor]] = []
        for name, parameter in model.named_parameters():
            master = parameter.detach().float().clone()
            parameter.data = parameter.data.to(torch.bfloat16)
            leaf: Any = parameter  # torch does not type its hooks
            leaf.register_post_accumulate_grad_hook(_adder(master))
            self.masters[name] = master
            self._pairs.append((parameter, master))

    def clear_gradients(self) -> None:
        """Free the sums, and what an interrupted backward pass left."""
        for parameter, master in self._pairs:
            parameter.grad = master.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        """Round the masters to bf16 into the model."""
        for parameter, master in self._pairs:
            parameter.copy_(master)


def _adder(master: torch.Tensor) -> Callable[[torch.Tensor], None]:
    def add(parameter: torch.Tensor) -> None:
        gradient, parameter.grad = parameter.grad, None
        if gradient is not None:
            master.grad = gradient.float() if master.grad is None else master.grad.add_(gradient)

    return add


PRECISIONS: dict[str, Callable[[nn.Module], Weights]] = {"fp32": Fp32Weights, "bf16": Bf16Weights}
"""By the recipe's `training.precision`."""
