"""In which dtype the weights compute, and where their gradients are summed and their updates kept.

fp32: the model's own weights are updated, autograd sums their gradients.
bf16: the model computes in bf16; fp32 master weights are updated and copied down after each update. The bf16
gradient of each micro-batch is added to an fp32 sum as soon as it is complete, and freed. So updates smaller
than the spacing of bf16 numbers are not lost (pytorch/pytorch#120376).
bf16-sr: as bf16, without masters: updates are computed in fp32 and rounded to bf16 by chance.
autocast: as fp32, but products are computed in bf16.

Of masters and of what is updated, a rank has its rows alone (ZeRO-1: `parallel/shares.py`); of gradients it
has those of the whole local parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, ClassVar, Protocol

import torch
from torch import nn

from kitae.parallel.shares import Shares
from kitae.train.rounding import Rounding

OnSum = Callable[[str, torch.Tensor], None]
"""Is given a parameter's name and the fp32 sum of its gradients so far."""


class Weights(Protocol):
    """The truth about a model's parameters."""

    masters: dict[str, torch.Tensor]
    """The rows of this rank by parameter name, in the dtype in which they are kept between updates."""
    on_sum: OnSum | None
    """Called after each backward pass has added a parameter's gradient."""
    rounds_by_chance: ClassVar[bool]
    """Whether what was updated is rounded so."""

    def sums(self) -> dict[str, torch.Tensor]:
        """fp32 sums of the gradients over the micro-batches since they were cleared, of the local shape.

        A parameter that no backward pass has reached is left out.
        """
        ...

    def release(self, name: str) -> None:
        """Forget the gradient of one parameter: its sum is used up."""
        ...

    def clear_gradients(self) -> None:
        """Forget the gradients."""
        ...

    def lend(self, names: Collection[str], rounding: Rounding) -> Iterator[dict[str, torch.Tensor]]:
        """Give the rows of `names` in fp32, to be updated in place, a set at a time.

        A set is taken back when the next one is asked for.
        """
        ...

    def publish(self) -> None:
        """Give the model the rows that the masters hold."""
        ...

    def forward_context(self) -> AbstractContextManager[Any]:
        """In which forward pass and loss are computed."""
        ...


class Fp32Weights:
    """The model's parameters are the masters."""

    rounds_by_chance: ClassVar[bool] = False

    def __init__(self, model: nn.Module, shares: Shares) -> None:
        for parameter in model.parameters():
            parameter.data = parameter.data.float()
        self._model = model
        self._parameters = dict(model.named_parameters())
        self.masters = {name: shares.cut(name, one) for name, one in self._parameters.items()}
        self._hooks: list[Any] = []
        self._on_sum: OnSum | None = None

    @property
    def on_sum(self) -> OnSum | None:
        """Called after each backward pass has added a parameter's gradient."""
        return self._on_sum

    @on_sum.setter
    def on_sum(self, call: OnSum | None) -> None:
        for hook in self._hooks:
            hook.remove()
        self._on_sum, self._hooks = call, []
        if call is not None:
            self._hooks = [
                _after_backward(one, partial(_tell, call, name)) for name, one in self._parameters.items()
            ]

    def sums(self) -> dict[str, torch.Tensor]:
        """The gradients, which autograd sums."""
        return {name: one.grad for name, one in self._parameters.items() if one.grad is not None}

    def release(self, name: str) -> None:
        """Free the gradient of one parameter."""
        self._parameters[name].grad = None

    def clear_gradients(self) -> None:
        """Free the gradients: the first micro-batch of an update then sets instead of adds."""
        for parameter in self._parameters.values():
            parameter.grad = None

    def lend(self, names: Collection[str], rounding: Rounding) -> Iterator[dict[str, torch.Tensor]]:
        """All masters at once; there is nothing to take back."""
        yield {name: self.masters[name] for name in names}

    def publish(self) -> None:
        """Nothing to do: the model computes with the masters."""

    def forward_context(self) -> AbstractContextManager[Any]:
        """Nothing special."""
        return nullcontext()


class AutocastWeights(Fp32Weights):
    """fp32 masters; products are computed in bf16, of which torch keeps copies for a forward pass."""

    def forward_context(self) -> AbstractContextManager[Any]:
        """Torch's autocast to bf16 on the model's device."""
        device = next(self._model.parameters()).device
        return torch.autocast(device.type, torch.bfloat16)


class _Bf16Model:
    """A model in bf16 whose gradients are summed in fp32; subclasses say what the masters are."""

    rounds_by_chance: ClassVar[bool] = False

    def __init__(self, model: nn.Module, shares: Shares) -> None:
        self._shares = shares
        self._sums = _Sums()
        self._parameters = dict(model.named_parameters())
        self.masters: dict[str, torch.Tensor] = {}
        for name, parameter in self._parameters.items():
            self.masters[name] = self._convert(name, parameter)
            _after_backward(parameter, partial(self._sums.add, name))

    def _convert(self, name: str, parameter: nn.Parameter) -> torch.Tensor:
        """Turn a parameter into bf16; its master."""
        raise NotImplementedError

    @property
    def on_sum(self) -> OnSum | None:
        """Called after each backward pass has added a parameter's gradient."""
        return self._sums.on_sum

    @on_sum.setter
    def on_sum(self, call: OnSum | None) -> None:
        self._sums.on_sum = call

    def sums(self) -> dict[str, torch.Tensor]:
        """The fp32 sums, in the order of the parameters."""
        return {name: self._sums.tensors[name] for name in self._parameters if name in self._sums.tensors}

    def release(self, name: str) -> None:
        """Free the sum of one parameter."""
        self._sums.tensors.pop(name, None)

    def clear_gradients(self) -> None:
        """Free the sums, and what an interrupted backward pass left."""
        self._sums.tensors.clear()
        for parameter in self._parameters.values():
            parameter.grad = None

    def forward_context(self) -> AbstractContextManager[Any]:
        """Nothing special."""
        return nullcontext()


class Bf16Weights(_Bf16Model):
    """bf16 parameters below fp32 masters."""

    def _convert(self, name: str, parameter: nn.Parameter) -> torch.Tensor:
        master = self._shares.take(name, parameter.detach()).to(torch.float32, copy=True)
        parameter.data = parameter.data.to(torch.bfloat16)
        return master

    def lend(self, names: Collection[str], rounding: Rounding) -> Iterator[dict[str, torch.Tensor]]:
        """All masters at once; there is nothing to take back."""
        yield {name: self.masters[name] for name in names}

    @torch.no_grad()
    def publish(self) -> None:
        """Round the masters to bf16 into the model."""
        for name, parameter in self._parameters.items():
            self._shares.cut(name, parameter).copy_(self.masters[name])


class StochasticWeights(_Bf16Model):
    """bf16 parameters without masters; what was updated is rounded by chance."""

    rounds_by_chance = True

    def __init__(self, model: nn.Module, shares: Shares) -> None:
        self._layouts = {layout.name: layout for layout in shares.layouts}
        super().__init__(model, shares)

    def _convert(self, name: str, parameter: nn.Parameter) -> torch.Tensor:
        parameter.data = parameter.data.to(torch.bfloat16)
        return self._shares.cut(name, parameter.detach())

    def lend(self, names: Collection[str], rounding: Rounding) -> Iterator[dict[str, torch.Tensor]]:
        """fp32 copies, one at a time to save memory, which are rounded into the parameters."""
        for name in names:
            values = self.masters[name].float()
            yield {name: values}
            layout = self._layouts[name]
            # The layout of a scalar parameter is one row.
            rounding.round_into(self.masters[name].view(layout.shape), values.view(layout.shape), layout)

    def publish(self) -> None:
        """Nothing to do: the masters are the model's parameters."""


class _Sums:
    """fp32 sums of bf16 gradients. It does not know the parameters, whose hooks it is part of."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.on_sum: OnSum | None = None

    def add(self, name: str, parameter: torch.Tensor) -> None:
        """Take a parameter's new gradient away from it."""
        gradient, parameter.grad = parameter.grad, None
        if gradient is None:
            return
        total = self.tensors.get(name)
        self.tensors[name] = total = gradient.float() if total is None else total.add_(gradient)
        if self.on_sum is not None:
            self.on_sum(name, total)


def _tell(on_sum: OnSum, name: str, parameter: torch.Tensor) -> None:
    if parameter.grad is not None:
        on_sum(name, parameter.grad)


def _after_backward(parameter: Any, call: Callable[[torch.Tensor], None]) -> Any:
    """Call with the parameter when a backward pass has added to its gradient; torch does not type hooks."""
    return parameter.register_post_accumulate_grad_hook(call)


PRECISIONS: dict[str, Callable[[nn.Module, Shares], Weights]] = {
    "fp32": Fp32Weights,
    "bf16": Bf16Weights,
    "bf16-sr": StochasticWeights,
    "autocast": AutocastWeights,
}
"""By the recipe's `training.precision`."""
