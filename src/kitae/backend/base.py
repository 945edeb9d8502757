"""The few things that differ between machines; everything else in kitae is the same code on all of them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch

Precision = Literal["fp32", "bf16"]


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
    device: torch.device
    """Where this process keeps its tensors."""

    @classmethod
    @abstractmethod
    def unavailable(cls) -> str | None:
        """Why this machine cannot be used here, or None when it can."""

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

    @abstractmethod
    def release_memory(self) -> None:
        """Give back what was freed but kept, for the processes that come next."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until everything that was asked of the device is done."""

    @abstractmethod
    def memory_bytes(self) -> int:
        """Most bytes that this process has held at once, of the device (of the host, where that is one)."""

    @abstractmethod
    def boundary(self) -> None:
        """End of a unit of work, where a compiler that collects operations cuts its graph."""

    def peak_flops(self, dtype: torch.dtype) -> float:
        """Floating-point operations per second of a matrix product in `dtype`, measured now (0.2 s)."""
        return _measured_peak(self.device, dtype)


def _measured_peak(device: torch.device, dtype: torch.dtype, *, budget_s: float = 0.2) -> float:
    """Best of many square products, each short enough to fall between what other processes do."""
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
