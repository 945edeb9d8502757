"""A CPU that says that it collects graphs: what such a backend brings about, without torch-xla."""

from __future__ import annotations

from kitae.backend.cpu import CpuBackend


class LazyCpu(CpuBackend):
    """Shapes are fixed, and values are read late."""

    lazy = True
    static = True
