"""One NVIDIA GPU."""

from __future__ import annotations

import torch

from kitae.backend.base import Backend


class CudaBackend(Backend):
    """The current CUDA device of this process."""

    name = "cuda"
    default_precision = "bf16"
    fused_optimizer = True

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())

    @classmethod
    def unavailable(cls) -> str | None:
        """Why CUDA cannot be used, or None."""
        return None if torch.cuda.is_available() else "torch sees no CUDA device"

    def synchronize(self) -> None:
        """Wait for the device's queue."""
        torch.cuda.synchronize(self.device)

    def memory_bytes(self) -> int:
        """Peak bytes of tensors on the device."""
        return torch.cuda.max_memory_allocated(self.device)

    def boundary(self) -> None:
        """Nothing is collected here."""
