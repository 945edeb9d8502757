"""Trn2 and Trn3 through TorchNeuron: torch's own device `neuron`, one process a logical core.

Not run on such a chip. What is used of it is its documented interface (`torch.neuron`, the torch.distributed
backend `neuron`, `torch.compile(backend="neuron")`); what a release lacks of it is said when it is asked for.
Shapes are static, as its compiler needs them; operations run when they are called, as on CUDA.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist

from kitae.backend.base import Backend, measured_peak
from kitae.backend.stack import instance_type, neuron_package
from kitae.errors import RecipeError

DEVICE = "neuron"
_TRANSPORT = _COMPILER = "neuron"
_PEAKS = ("max_memory_allocated", "memory_allocated")
_CACHES = ("empty_cache",)


class NeuronBackend(Backend):
    """One logical core: of ranks the one of their number on the machine (LOCAL_RANK), else the first."""

    name = "neuron"
    default_precision = "bf16"
    fused_optimizer = False
    exclusive = True
    static = True

    def __init__(self) -> None:
        # The current one: which that is, the world decides, and before it is set up nothing may be asked of
        # the runtime.
        self.device = torch.device(DEVICE)

    @property
    def rounds_by_chance(self) -> bool:
        """The chip does. Keyed rounding needs 64-bit integers, which its eager mode does not have."""
        return True

    @classmethod
    def unavailable(cls) -> str | None:
        """Why TorchNeuron cannot be used, or None."""
        package = neuron_package()
        if package.kind in _OBSTACLES:
            return _OBSTACLES[package.kind].format(version=package.version)
        device = getattr(torch, "neuron", None)
        if device is None:
            return (
                f"torch-neuronx {package.version} has not added torch.neuron to torch {torch.__version__}; "
                "both have to be of one release (2.14.* for torch 2.14)"
            )
        return None if _count(device) else "TorchNeuron sees no core: is the driver loaded, are cores free?"

    @classmethod
    def devices(cls) -> int:
        """Logical cores that this process sees."""
        return _count(getattr(torch, "neuron", None)) if neuron_package().kind == "native" else 0

    @classmethod
    def transport(cls, local_size: int) -> tuple[str, bool]:
        """Its own collectives, on the device."""
        return _TRANSPORT, False

    @classmethod
    def world(cls, ranks: int) -> str:
        """Gloo and its own beside each other.

        The first of its process groups starts the runtime, for as many ranks as are in it: that has to be the
        whole world, and not a group of the mesh (torch-neuronx, ProcessGroupNeuron). Raises `RecipeError`
        where the release brings none.
        """
        if ranks == 1:
            return "gloo"
        _register_collectives()
        return f"cpu:gloo,{DEVICE}:{_TRANSPORT}"

    def joined(self) -> None:
        """Take the core of this process's rank on its machine."""
        if dist.get_world_size() > 1:
            _called(_module(), "set_device", int(os.environ["LOCAL_RANK"]))

    def release_memory(self) -> None:
        """Empty its cache of device memory, where it has one."""
        gc.collect()
        for name in _CACHES:
            if hasattr(_module(), name):
                _called(_module(), name)

    def synchronize(self) -> None:
        """Wait for the device's queues."""
        _called(_module(), "synchronize")

    def memory_bytes(self) -> int:
        """Peak bytes of tensors on the device; what is held now, or 0, where the release tells no more."""
        name = next((one for one in _PEAKS if hasattr(_module(), one)), None)
        return 0 if name is None else int(_called(_module(), name))

    def peak_flops(self, dtype: torch.dtype) -> float:
        """Of a logical core, by the data sheet of this machine's chip; measured where the type is unknown."""
        from kitae.catalog.instances import instances

        known = instances().get(instance_type())
        if known is None or known.chip is None:
            return measured_peak(self.device, dtype)
        return 1e12 * known.chip.peak_tflops["fp32" if dtype == torch.float32 else "bf16"]

    def compile(self, model: torch.nn.Module) -> str | None:
        """Let its compiler have each layer of a model as one program of static shapes, in place."""
        layers = getattr(model, "layers", None)
        if not isinstance(layers, torch.nn.ModuleList):
            return None
        if _COMPILER not in torch.compiler.list_backends():
            version = neuron_package().version
            return f"torch-neuronx {version} has no compiler for torch.compile: layers run eagerly"
        for layer in layers:
            layer.compile(backend=_COMPILER, dynamic=False)
        return f"{len(layers)} layers go through torch.compile (backend {_COMPILER}, static shapes)"


_OBSTACLES = {
    "absent": "TorchNeuron (torch-neuronx 2.13 or newer, for Trn2 and Trn3) is not installed",
    "xla": "torch-neuronx {version} is the one for torch-xla, not TorchNeuron: take backend xla, or install "
    "TorchNeuron in an environment of its own",
    "unclear": "torch-neuronx {version} is neither clearly TorchNeuron nor clearly the one for torch-xla: "
    "install one of them anew",
}


def _register_collectives() -> None:
    """Importing the package registers its process group, where torch has not done so by itself."""
    if _TRANSPORT not in dist.Backend.backend_list:
        with suppress(ImportError):
            import_module("torch_neuronx")
    if _TRANSPORT not in dist.Backend.backend_list:
        version = neuron_package().version
        raise RecipeError(
            f"backend 'neuron': torch-neuronx {version} brings no process group for torch.distributed, "
            "without which one process alone can train; update it"
        )


def _module() -> Any:
    return torch.neuron  # type: ignore[attr-defined]


def _count(module: Any) -> int:
    count: Callable[[], int] | None = getattr(module, "device_count", None)
    try:
        return 0 if count is None else int(count())
    except RuntimeError:  # the runtime cannot be started
        return 0


def _called(module: Any, name: str, *arguments: Any) -> Any:
    function = getattr(module, name, None)
    if function is None:
        version = neuron_package().version
        raise RecipeError(f"backend 'neuron': torch-neuronx {version} has no torch.neuron.{name}; update it")
    return function(*arguments)
