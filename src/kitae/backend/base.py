"""The few things that differ between machines; everything else in kitae is the same code on all of them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch

Precision = Literal["fp32", "bf16"]
Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Ended:
    """What a backend knows of a graph that a boundary has just ended."""

    key: str | None = None
    """Which graph it was, the same in every process; None where nothing is collected."""
    compiled: int = 0
    """Programs that had to be compiled for it."""
    between: int = 0
    """Programs compiled since the boundary before it, outside of any graph: for values that were read."""
    artefact: str | None = None
    """What the compiler's cache calls the program, where it has just been put there."""


NOTHING_COLLECTED = Ended()


class GraphObserver(Protocol):
    """Is told of every graph that ends."""

    def ended(self, graph: str, inputs: Tensors, ended: Ended) -> None:
        """A graph called `graph`, which was fed with `inputs`, is on its way; may raise."""
        ...


class Unobserved:
    """Nobody wants to know."""

    def ended(self, graph: str, inputs: Tensors, ended: Ended) -> None:
        """Nothing to note."""


NOBODY = Unobserved()


class Backend(ABC):
    """A kind of machine. Loop, optimizer and model code use this and never ask which one it is."""

    name: ClassVar[str]
    """What a recipe or a message calls it."""
    default_precision: ClassVar[Precision]
    """What `training.precision: auto` means here."""
    fused_optimizer: ClassVar[bool]
    """Whether torch has a fused AdamW kernel for it."""
    exclusive: ClassVar[bool]
    """Whether each of its devices is for one process alone."""
    lazy: ClassVar[bool] = False
    """Whether operations are collected into graphs, which `boundary` ends; reading a value ends one, too."""
    static: ClassVar[bool] = False
    """Whether shapes must not depend on what the data hold, because a program is compiled for each."""
    device: torch.device
    """Where this process keeps its tensors."""
    observer: GraphObserver = NOBODY
    """Is told of every boundary."""

    @property
    def rounds_by_chance(self) -> bool:
        """Whether the device itself rounds so whatever becomes bf16, when its environment says so."""
        return False

    @property
    def pretends(self) -> bool:
        """Whether graphs are only collected for a compiler, so that every value read back is made up."""
        return False

    @classmethod
    @abstractmethod
    def unavailable(cls) -> str | None:
        """Why this machine cannot be used here, or None when it can."""

    @classmethod
    def unasked(cls) -> bool:
        """Whether it may be taken without being named; asked before anything of it is imported."""
        return True

    @classmethod
    @abstractmethod
    def devices(cls) -> int:
        """How many of its devices there are here; 0 when it is unavailable."""

    @classmethod
    @abstractmethod
    def transport(cls, local_size: int) -> tuple[str, bool]:
        """What `local_size` processes of this machine exchange tensors with.

        The name of a torch.distributed backend, and whether tensors have to go through host memory for it.
        """

    @classmethod
    def world(cls, ranks: int) -> str:
        """What torch.distributed sets a world of `ranks` processes up with; gloo, for the host, is part."""
        return "gloo"

    def joined(self) -> None:
        """The world is there; take the device of this process, where that had to wait for it."""
        return

    @abstractmethod
    def release_memory(self) -> None:
        """Give back what was freed but kept, for the processes that come next."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until everything that was asked of the device is done."""

    @abstractmethod
    def memory_bytes(self) -> int:
        """Most bytes that this process has held at once, of the device (of the host, where that is one)."""

    def boundary(
        self, graph: str, inputs: Tensors | None = None, outputs: Sequence[torch.Tensor] = ()
    ) -> None:
        """End of a unit of work, where a compiler that collects operations cuts its graph.

        `graph` names it (train/first, train/middle, train/last or train/only of the micro-batches, update,
        evaluate, begin, resume, save); `inputs` is what it was fed with, by name, and `outputs` what it made.
        """
        self.observer.ended(graph, inputs or {}, NOTHING_COLLECTED)

    def compile(self, model: torch.nn.Module) -> str | None:
        """Hand layers of a model to torch.compile, in place, where this machine wants it; what to tell."""
        return None

    def side_device(self) -> torch.device:
        """Where work goes that has other shapes each time: samples, and looking for what is not finite."""
        return self.device

    def peak_flops(self, dtype: torch.dtype) -> float:
        """Floating-point operations per second of a matrix product in `dtype`, measured now (0.2 s)."""
        return measured_peak(self.device, dtype)


def measured_peak(device: torch.device, dtype: torch.dtype, *, budget_s: float = 0.2) -> float:
    """FLOP/s: the best of many square products, each short enough to fall between what other processes do."""
    side = 512 if device.type == "cpu" else 8192
    left, right = (torch.ones(side, side, dtype=dtype, device=device) for _ in range(2))
    out = torch.empty(side, side, dtype=dtype, device=device)

    def seconds() -> float:
        begin = time.perf_counter()
        torch.mm(left, right, out=out)
        out[0, 0].item()  # waits for the device
        return time.perf_counter() - begin

    seconds()  # warms up
    end, best = time.perf_counter() + budget_s, seconds()
    while time.perf_counter() < end:
        best = min(best, seconds())
    return float(2 * side**3 / best)
