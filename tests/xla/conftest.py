"""torch-xla's CPU for all tests here, with programs that compile quickly, and the helpers of tests/train."""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "train"))

if find_spec("torch_xla") is not None:
    os.environ.setdefault("PJRT_DEVICE", "CPU")
    # What takes most of the time is LLVM; with this it takes half of it.
    quick = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    os.environ.setdefault("XLA_FLAGS", quick)
    os.environ.setdefault("KITAE_CACHE", tempfile.mkdtemp(prefix="kitae-xla-"))
    # The first backward pass of a process counts its devices, and those that come later have none; and the
    # folder of programs is chosen before anything is computed.
    from kitae.backend.table import select

    select("xla")
