"""Lets XLA's compiler take the programs of a traced case for four replicas, without running any; a program.

`python compiled_case.py NAME` prints, by program, how many had to be compiled the first and the second time.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ |= {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "4", "XLA_FLAGS": QUICK}


def compiled(name: str) -> list[tuple[str, int]]:
    """Each program as it is traced, and how many compilations it took."""
    import torch
    import torch_xla.core.xla_model as xm
    import torch_xla.debug.metrics as met
    from traced_cases import to_trace

    from kitae.precompile import tracing
    from kitae.precompile.traced import TracedBackend

    found: list[tuple[str, int]] = []

    class Compiling(TracedBackend):
        def _note(self, graph: str, inputs: Any, results: Sequence[torch.Tensor]) -> None:
            super()._note(graph, inputs, results)
            before, core = met.counter_value("UncachedCompile") or 0, self._lib.core
            core._set_allow_execution(True)  # compiling asks for it, too
            core._xla_warm_up_cache([*results], [])
            core._set_allow_execution(False)
            found.append((graph, met.counter_value("UncachedCompile") - before))

    devices = xm.get_xla_supported_devices()
    xm.set_replication(devices[0], devices)
    tracing.TracedBackend = Compiling
    for _ in range(2):
        tracing.trace(to_trace(name), 0)
    return found


if __name__ == "__main__":
    from traced_cases import counted

    print(json.dumps({"compiled": compiled(sys.argv[1]), "counted": counted()}))
    sys.stdout.flush()
    os._exit(0)
