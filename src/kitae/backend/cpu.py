"""The CPU: what everything runs on by default."""

from __future__ import annotations

import re
import resource
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

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        route_products()

    @classmethod
    def unavailable(cls) -> str | None:
        """Never: there is always a CPU."""
        return None

    def synchronize(self) -> None:
        """Nothing to wait for: operations are done when they return."""

    def memory_bytes(self) -> int:
        """Peak resident bytes of this process."""
        if _STATUS.exists() and (peak := re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())):
            return int(peak[1]) * 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def boundary(self) -> None:
        """Nothing is collected here."""


@cache
def route_products() -> bool:
    """Let oneDNN, not MKL, multiply fp32 matrices where that changes only the time; say whether it does.

    MKL leaves AVX-512 unused on processors that are not Intel's: on a Zen 5 core it does 106 GFLOP/s, oneDNN
    235. torch hands fp32 products to oneDNN only with the leave to round them to bf16. oneDNN makes use of that
    leave on processors with AMX tiles; elsewhere it has no such kernel and computes in fp32. So: only without
    tiles, and only when products that a rounded factor would change come out right.
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
