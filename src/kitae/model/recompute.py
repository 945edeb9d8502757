"""What the backward pass computes again instead of keeping it."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal, get_args

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

Recompute = Literal["none", "selective", "full"]


def _at_once(layer: nn.Module, hidden: torch.Tensor, context: Any) -> torch.Tensor:
    return checkpoint(layer, hidden, context, use_reentrant=False)  # type: ignore[no-any-return]


def _in_graph(layer: nn.Module, hidden: torch.Tensor, context: Any) -> torch.Tensor:
    """With a barrier in the graph: a compiler would see that both passes are the same, and keep one."""
    found: torch.Tensor = import_module("torch_xla.utils.checkpoint").checkpoint(
        layer, hidden, context, preserve_rng_state=False
    )
    return found


class Recomputing(nn.Module):
    """A model of layers, which are called with hidden states and what they share."""

    _recompute: Recompute = "none"

    @property
    def recompute(self) -> Recompute:
        """What the backward pass computes again instead of keeping it."""
        return self._recompute

    @recompute.setter
    def recompute(self, mode: Recompute) -> None:
        assert mode in get_args(Recompute), mode
        self._recompute = mode

    def _run(self, layer: nn.Module, hidden: torch.Tensor, context: Any) -> torch.Tensor:
        if self._recompute == "full":
            again = _in_graph if hidden.device.type == "xla" else _at_once
            return again(layer, hidden, context)
        return layer(hidden, context)  # type: ignore[no-any-return]
