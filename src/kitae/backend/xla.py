"""Trn1 through torch-xla, and the same tracer and compiler on a CPU (PJRT_DEVICE=CPU), where they are tried.

Operations are collected; `boundary` compiles what is new of them and starts it. Reading a value does so, too,
and is a defect in the hot path. torch-xla is imported when the backend is made, and never before.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from kitae.backend.base import Backend, Ended, Tensors, measured_peak
from kitae.backend.cpu import peak_resident_bytes
from kitae.errors import RecipeError
from kitae.storage.cache import cache_folder
from kitae.storage.disk import storage_errors

NEEDS = "it needs torch 2.9.1 and torch-xla 2.9.0, in an environment of their own"
DEVICES = Path("/dev")
"""Where the driver puts neuron0, neuron1 and so on."""
CORES_OF_A_DEVICE = 2
"""Of a Trainium1."""
_COMPILED, _REUSED = "UncachedCompile", "CachedCompile"
NOTES = "kitae-graphs.txt"
"""In the folder of programs: a line `<key> <file>` for each."""
_COLLECT = "NEURON_EXTRACT_GRAPHS_ONLY"
"""Set by neuron_parallel_compile while it collects graphs, which then give zeros."""


class XlaBackend(Backend):
    """One device of torch-xla: a core of a Trainium1, or the host's CPU."""

    name = "xla"
    default_precision = "bf16"
    fused_optimizer = False
    exclusive = True
    lazy = True
    static = True

    def __init__(self) -> None:
        if neuron_devices():
            os.environ.setdefault("PJRT_DEVICE", "NEURON")
        if not self.on_chip:
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # it warns of each program that it cannot load
        self._lib = _library()
        self._artefacts = _NoArtefacts() if self.on_chip else _artefacts()
        self.device = self._lib.device()
        self._compiled_before = 0
        self._settle()

    @classmethod
    def unavailable(cls) -> str | None:
        """Why torch-xla cannot be used, told without importing it; None when it can."""
        return next((reason for look in _OBSTACLES if (reason := look()) is not None), None)

    @classmethod
    def unasked(cls) -> bool:
        """Only where a Neuron device is."""
        return bool(neuron_devices())

    @classmethod
    def devices(cls) -> int:
        """Cores of the Neuron devices here (NEURON_RT_NUM_CORES of them); on a CPU as many as it plays."""
        if cls.unavailable() is not None:
            return 0
        if os.environ.get("PJRT_DEVICE") == "CPU":
            return _number("CPU_NUM_DEVICES", 1)
        return _number("NEURON_RT_NUM_CORES", CORES_OF_A_DEVICE * len(neuron_devices()))

    @classmethod
    def transport(cls, local_size: int) -> tuple[str, bool]:
        """Collectives are operations of the graph."""
        return "xla", False

    @property
    def on_chip(self) -> bool:
        """Whether it is a Trainium, not a CPU that plays one."""
        return os.environ.get("PJRT_DEVICE") != "CPU"

    @property
    def rounds_by_chance(self) -> bool:
        """A Trainium does."""
        return self.on_chip

    @property
    def pretends(self) -> bool:
        """Whether graphs are only collected for the compiler."""
        return os.environ.get(_COLLECT) == "1"

    def release_memory(self) -> None:
        """Let tensors go that nobody holds; the runtime gives nothing back before the process ends."""
        gc.collect()

    def synchronize(self) -> None:
        """Wait until all that was started is done; not what is still collected."""
        self._lib.model.wait_device_ops()

    def memory_bytes(self) -> int:
        """Most bytes of the device, as its runtime says; of this process, where it does not say (a CPU)."""
        with suppress(RuntimeError):
            told = self._lib.model.get_memory_info(self.device)
            return int(told.get("peak_bytes_used") or told["bytes_used"])
        return peak_resident_bytes()

    def peak_flops(self, dtype: torch.dtype) -> float:
        """Of a core, by its data sheet; on a CPU as torch itself reaches it there, measured now."""
        if not self.on_chip:
            return measured_peak(torch.device("cpu"), dtype)
        from kitae.catalog.instances import chips

        peaks = chips()["trainium1"].peak_tflops
        return 1e12 * peaks["fp32" if dtype == torch.float32 else "bf16"]

    def side_device(self) -> torch.device:
        """The host: on the device each new shape would be compiled."""
        return torch.device("cpu")

    def boundary(
        self, graph: str, inputs: Tensors | None = None, outputs: Sequence[torch.Tensor] = ()
    ) -> None:
        """Compile what has been collected, unless that was done before, and start it."""
        key = self.graph_key(outputs)
        before, started = self.compiled(), self.started()
        between = before - self._compiled_before
        self._lib.torch_xla.sync()
        compiled = self.compiled() - before
        self._settle()
        if self.started() == started:
            return  # nothing was collected
        artefact = self._artefacts.of(key) if compiled else None
        self.observer.ended(graph, inputs or {}, Ended(key, compiled, between, artefact))

    def graph_key(self, outputs: Sequence[torch.Tensor]) -> str | None:
        """Which graph these tensors are the results of; None of nothing."""
        return self._lib.core._get_graph_hash([*outputs]).hex() if outputs else None

    def compiled(self) -> int:
        """Programs that this process has compiled."""
        return int(self._lib.metrics.counter_value(_COMPILED) or 0)

    def started(self) -> int:
        """Programs that this process has started, compiled for it or not."""
        return self.compiled() + int(self._lib.metrics.counter_value(_REUSED) or 0)

    def fallbacks(self) -> list[str]:
        """Operations that torch-xla could not put into a graph and computed on the host."""
        return list(self._lib.metrics.executed_fallback_ops())

    def _settle(self) -> None:
        self._compiled_before = self.compiled()


class _Artefacts:
    """The compiler's cache of a CPU. Its programs cannot be loaded again, but their names tell them apart.

    A program that is there already is not put there again; `kitae-graphs.txt` remembers which key it had.
    """

    def __init__(self, library: _Library) -> None:
        self._folder = cache_folder() / "compiled" / f"xla-cpu-{version('torch-xla')}"
        with storage_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        library.runtime.initialize_cache(str(self._folder), readonly=False)
        self._seen = self._names()

    def of(self, key: str | None) -> str | None:
        """Name of the program that was made for the graph `key` since the last call; None where not known."""
        before, self._seen = self._seen, self._names()
        found = sorted(self._seen - before)
        noted = self._noted().get(key or "")
        if key is None or noted in self._seen:
            return noted  # what is new may be of another process
        if len(found) == 1:
            with suppress(OSError), self._notes.open("a", encoding="utf-8") as notes:
                notes.write(f"{key} {found[0]}\n")
            return found[0]
        return None

    @property
    def _notes(self) -> Path:
        return self._folder / NOTES

    def _noted(self) -> dict[str, str]:
        with suppress(OSError):
            text = self._notes.read_text(encoding="utf-8", errors="replace")
            lines = (line.split() for line in text.splitlines())
            return {words[0]: words[1] for words in lines if len(words) == 2}
        return {}

    def _names(self) -> set[str]:
        return {one.name for one in self._folder.glob("*") if one.name != NOTES}


@cache
def _artefacts() -> _Artefacts | _NoArtefacts:
    """One in a process, which has one folder of programs; none where something was computed before."""
    library = _library()
    begun = library.core._xla_computation_cache_is_initialized()
    return _NoArtefacts() if begun else _Artefacts(library)


class _NoArtefacts:
    """Nothing is known of them here; Neuron's own cache is looked into by its log."""

    def of(self, key: str | None) -> str | None:
        """Not known here."""
        return None


class _Library:
    """The modules of torch-xla. Raises `RecipeError` where they cannot be imported."""

    def __init__(self) -> None:
        try:
            self.torch_xla: Any = import_module("torch_xla")
            self.model: Any = import_module("torch_xla.core.xla_model")
            self.runtime: Any = import_module("torch_xla.runtime")
            self.metrics: Any = import_module("torch_xla.debug.metrics")
        except Exception as error:  # a library of another version raises anything
            first, *_ = str(error).splitlines() or [type(error).__name__]
            raise RecipeError(f"backend 'xla' cannot be used: importing torch-xla fails: {first}") from None
        self.core: Any = self.torch_xla._XLAC

    def device(self) -> torch.device:
        """The device of this process. Raises `RecipeError` where the runtime gives none."""
        try:
            found: torch.device = self.torch_xla.device()
        except Exception as error:
            first, *_ = str(error).splitlines() or [type(error).__name__]
            raise RecipeError(
                f"backend 'xla' cannot be used: its runtime (PJRT_DEVICE={os.environ.get('PJRT_DEVICE')}) "
                f"gives no device: {first}"
            ) from None
        return found


@cache
def _library() -> _Library:
    return _Library()


def neuron_devices() -> list[Path]:
    """The devices that a Neuron driver shows here."""
    return sorted(one for one in DEVICES.glob("neuron*") if one.name[6:].isdigit())


def _number(variable: str, otherwise: int) -> int:
    """What a variable says. Raises `RecipeError` where that is no number."""
    text = os.environ.get(variable) or str(otherwise)
    if not text.isdecimal():
        raise RecipeError(f"{variable}={text} is no number of devices: set it to one, or unset it")
    return int(text)


def _not_installed() -> str | None:
    return None if find_spec("torch_xla") is not None else f"torch-xla is not installed; {NEEDS}"


def _other_torch() -> str | None:
    """torch-xla is built for one torch, and with another one it cannot even be imported."""
    try:
        wanted = version("torch-xla")
    except PackageNotFoundError:
        return None
    fits = wanted.split(".")[:2] == torch.__version__.split(".")[:2]
    return None if fits else f"torch-xla {wanted} does not fit torch {torch.__version__}; {NEEDS}"


def _no_device() -> str | None:
    kind = os.environ.get("PJRT_DEVICE") or ("NEURON" if neuron_devices() else "")
    if kind == "CPU":
        return None
    if kind != "NEURON":
        given = f"PJRT_DEVICE is {kind}" if kind else "PJRT_DEVICE is not set"
        return f"{given}: set it to NEURON on a Trainium, or to CPU to try the backend without one"
    if not neuron_devices():
        return f"PJRT_DEVICE is NEURON, and there is no Neuron device ({DEVICES}/neuron0) here"
    missing = find_spec("libneuronxla") is None
    return "PJRT_DEVICE is NEURON, and libneuronxla is not installed" if missing else None


_OBSTACLES: tuple[Callable[[], str | None], ...] = (_not_installed, _other_torch, _no_device)
"""In this order: what comes later takes for granted that there is nothing earlier."""
