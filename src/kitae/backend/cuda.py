"""One NVIDIA GPU: that of the process's rank on this machine (LOCAL_RANK), or the current one."""

from __future__ import annotations

import gc
import os

import torch

from kitae.backend.base import Backend


class CudaBackend(Backend):
    """The current CUDA device of this process."""

    name = "cuda"
    default_precision = "bf16"
    fused_optimizer = True
    exclusive = True

    def __init__(self) -> None:
        local_rank = os.environ.get("LOCAL_RANK")
        if local_rank is not None:
            torch.cuda.set_device(int(local_rank) % self.devices())
        self.device = torch.device("cuda", torch.cuda.current_device())

    @classmethod
    def unavailable(cls) -> str | None:
        """Why CUDA cannot be used, or None."""
        return None if torch.cuda.is_available() else "torch sees no CUDA device"

    @classmethod
    def devices(cls) -> int:
        """GPUs that this process sees."""
        return torch.cuda.device_count() if torch.cuda.is_available() else 0

    @classmethod
    def transport(cls, local_size: int) -> tuple[str, bool]:
        """NCCL; where processes share a GPU, which it refuses, gloo through host memory."""
        return ("nccl", False) if local_size <= cls.devices() else ("gloo", True)

    def release_memory(self) -> None:
        """Empty torch's cache of device memory."""
        gc.collect()
        torch.cuda.empty_cache()

    def synchronize(self) -> None:
        """Wait for the device's queue."""
        torch.cuda.synchronize(self.device)

    def memory_bytes(self) -> int:
        """Peak bytes of tensors on the device."""
        return torch.cuda.max_memory_allocated(self.device)
