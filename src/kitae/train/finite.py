"""What to say when a loss or a gradient is not finite: where it began.

Called when the damage is seen, before the weights are updated; looks at the weights, then computes the
micro-batches once more and watches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from kitae.backend.group import Group
from kitae.errors import TrainingError
from kitae.parallel.mesh import Mesh
from kitae.train.batch import AnyMicroBatch

Forward = Callable[[Any], torch.Tensor]
"""What must be finite about a micro-batch: its loss, or its rows' losses."""


class NotFiniteError(TrainingError):
    """Loss, gradients or weights are not finite."""


_WAY_OUT = (
    "lower optimizer.learning_rate, lengthen schedule.warmup or set training.precision to fp32, and look at "
    "the rows with `kitae inspect`; metrics so far and the last checkpoint are kept"
)


def first_bad(tensors: Iterable[tuple[str, torch.Tensor | None]]) -> str | None:
    """Name of the first tensor that holds a NaN or an infinity."""
    return next((name for name, one in tensors if one is not None and not one.isfinite().all()), None)


def explain(
    model: nn.Module,
    forward: Forward,
    batches: Iterable[AnyMicroBatch],
    when: str,
    *,
    backward: bool = True,
    mesh: Mesh | None = None,
) -> NotFiniteError:
    """Build the error that names the first bad weight, activation or (with `backward`) gradient.

    `when` is the place in the run, such as `step 7`. All ranks of `mesh` call this together, each with its
    own micro-batches, and get the same error: that of the first rank that found something.
    """
    mesh = mesh or Mesh()
    found = _find(model, forward, batches, when, backward, mesh.tensor)
    found = _first(mesh.control.exchange(found)) or (
        f"{when}: loss and gradients of each micro-batch are finite, but their sum is not"
    )
    return NotFiniteError(f"{found}; {_WAY_OUT}")


def _find(
    model: nn.Module,
    forward: Forward,
    batches: Iterable[AnyMicroBatch],
    when: str,
    backward: bool,
    tensor: Group,
) -> str | None:
    """Name what is bad in this copy of the model; its ranks look together and agree after each pass."""
    weight = _first(tensor.exchange(first_bad(model.named_parameters())))
    if weight is not None:
        return f"{when}: weight {weight} is not finite, so nothing after it can be"
    for index, batch in enumerate(batches):
        what = _first(tensor.exchange(_in_forward(model, forward, batch)))
        if what is None and backward:
            what = _first(tensor.exchange(_in_backward(model, forward, batch)))
        if what is not None:
            rows = ", ".join(str(sample) for sample in batch.samples)
            return f"{when}, micro-batch {index}, rows {rows}: {what}"
    return None


def _first(found: Iterable[str | None]) -> str | None:
    return next((one for one in found if one is not None), None)


def _in_forward(model: nn.Module, forward: Forward, batch: AnyMicroBatch) -> str | None:
    """Name the first module, in the order in which they finish, whose output is bad."""
    bad: list[str] = []

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor) and not bad and first_bad([(name, output)]):
                bad.append(name)

        return look

    named = model.named_modules()
    hooks = [module.register_forward_hook(watch(name or "the model")) for name, module in named]
    try:
        with torch.no_grad():
            loss = forward(batch)
    finally:
        for hook in hooks:
            hook.remove()
    if bad:
        return f"the output of {bad[0]} is not finite, that of everything before it is"
    return None if loss.isfinite().all() else "the loss is not finite, though all hidden states are"


def _in_backward(model: nn.Module, forward: Forward, batch: AnyMicroBatch) -> str | None:
    """Name the first parameter with a bad gradient, in the order in which the backward pass ends them."""
    bad: list[str] = []

    def watch(name: str) -> Callable[[torch.Tensor], None]:
        def look(gradient: torch.Tensor) -> None:
            if not bad and first_bad([(name, gradient)]):
                bad.append(name)

        return look

    parameters: list[tuple[str, Any]] = list(model.named_parameters())
    hooks = [parameter.register_hook(watch(name)) for name, parameter in parameters]
    try:
        forward(batch).backward()  # type: ignore[no-untyped-call]
    finally:
        for hook in hooks:
            hook.remove()
    return f"the gradient of {bad[0]} is not finite, that of everything behind it is" if bad else None
