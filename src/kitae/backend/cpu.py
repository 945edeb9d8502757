"""The CPU: what everything runs on by default."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import resource
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

from kitae.backend.base import Backend

_STATUS = Path("/proc/self/status")


class CpuBackend(Backend):
    """The processor of this machine, with as many threads as torch takes (OMP_NUM_THREADS)."""

    name = "cpu"
    default_precision = "fp32"
    fused_optimizer = True
    exclusive = False

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        route_products()
        keep_freed_memory()

    @classmethod
    def unavailable(cls) -> str | None:
        """Never: there is always a CPU."""
        return None

    @classmethod
    def devices(cls) -> int:
        """Cores that this process may use: more processes than that only wait for each other."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    @classmethod
    def transport(cls, local_size: int) -> tuple[str, bool]:
        """Gloo, which works on host memory."""
        return "gloo", False

    def release_memory(self) -> None:
        """Give the heap's free pages back to the system (glibc)."""
        gc.collect()
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)

    def synchronize(self) -> None:
        """Nothing to wait for: operations are done when they return."""

    def memory_bytes(self) -> int:
        """Peak resident bytes of this process."""
        return peak_resident_bytes()


def peak_resident_bytes() -> int:
    """Most bytes of memory that this process has had at once."""
    if _STATUS.exists() and (peak := re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())):
        return int(peak[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@cache
def keep_freed_memory() -> bool:
    """Let glibc keep what a step frees for the next one instead of giving it back; say whether it does.

    A training step asks for the same gigabytes each time, and the kernel clears every page that it hands out:
    134,000 page faults a step of a 10-layer SmolLM2 become 55,000, and 4 % of the time is saved.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False  # not glibc
    accepted = [mallopt(option, value) for option, value in _MALLOC.items()]
    return all(accepted)


_MALLOC = {
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD: free bytes at the top of the heap before any go back
    -2: 256 << 20,  # M_TOP_PAD: bytes by which the heap grows at least
    -3: 32 << 20,  # M_MMAP_THRESHOLD: largest block that comes from the heap; more is not allowed
}


@cache
def route_products() -> bool:
    """Let oneDNN, not MKL, multiply fp32 matrices where that changes only the time; say whether it does.

    MKL leaves AVX-512 unused on processors that are not Intel's: on a Zen 5 core it does 106 GFLOP/s, oneDNN
    235, and a step of SmolLM2-135M takes 1.8 times less. torch hands fp32 products to oneDNN only with the
    leave to round them to bf16. oneDNN makes use of that on processors with AMX tiles; elsewhere it has no
    such kernel and computes in fp32. So: only without tiles, and only when products that rounding would
    change come out right.
    """
    onednn: Any = torch.backends.mkldnn  # torch does not type it
    if not onednn.is_available() or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    if torch.cpu._is_amx_tile_supported():
        return False
    settings = onednn.matmul
    before = settings.fp32_precision
    settings.fp32_precision = "bf16"
    if _products_are_exact():
        return True
    settings.fp32_precision = before
    return False


def _products_are_exact() -> bool:
    """Whether fp32 products keep bits that bf16 does not have, in each of the three forms that training uses.

    Factors are whole numbers below 2**10 (bf16 holds 8 bits) and sums stay below 2**24: exact in any order.
    """
    for rows, inner, columns in ((64, 16, 256), (512, 16, 384), (512, 8, 2048)):
        left = (torch.arange(rows * inner) % 1021).float().view(rows, inner)
        right = (torch.arange(inner * columns) % 1019).float().view(inner, columns)
        exact = (left.long() @ right.long()).float()
        forms = (left @ right, left @ right.t().contiguous().t(), left.t().contiguous().t() @ right)
        if not all(torch.equal(product, exact) for product in forms):
            return False
    return True
