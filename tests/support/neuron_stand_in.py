"""A stand-in for TorchNeuron: a module `torch.neuron` of the documented functions, whose device is the CPU.

It shows that nothing beyond the documented interface is asked for, that static shapes and compiled layers
give the results of the CPU, and what is said where a release lacks something. It shows nothing of the chip,
its compiler and its collectives.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from kitae.backend import neuron
from kitae.backend.stack import NeuronPackage

FOUR_CORES = {"device_count": lambda: 4, "current_device": lambda: 0}
WHOLE = {
    **FOUR_CORES,
    "set_device": lambda index: None,
    "synchronize": lambda: None,
    "empty_cache": lambda: None,
    "max_memory_allocated": lambda: 12345,
}


class StandIn:
    """Makes this environment look like one with TorchNeuron, whose torch.neuron has the functions given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[object, ...]] = []
        self._monkeypatch = monkeypatch

    def __call__(self, **functions: object) -> None:
        self._monkeypatch.setattr(neuron, "neuron_package", lambda: NeuronPackage("native", "2.14.3.0"))
        self._monkeypatch.setattr(neuron, "DEVICE", "cpu")
        module = SimpleNamespace(**{name: self._kept(name, one) for name, one in functions.items()})
        self._monkeypatch.setattr(torch, "neuron", module, raising=False)

    def _kept(self, name: str, function):
        def call(*given: object) -> object:
            self.calls.append((name, *given))
            return function(*given)

        return call
