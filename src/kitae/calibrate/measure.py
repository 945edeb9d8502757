"""The whole calibration: one process with all threads, two with their shares, memory and disk."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from kitae.backend.table import select
from kitae.calibrate.clock import timed
from kitae.calibrate.ranks import measure_rank
from kitae.calibrate.storage import measure_storage
from kitae.calibrate.sweep import Say, sweeps
from kitae.errors import StoppedError
from kitae.launch.local import launch_ranks
from kitae.launch.order import Launch
from kitae.parallel.mesh import Mesh
from kitae.plan.calibration import Calibration, ProductSpeed, Speeds
from kitae.plan.identity import identity
from kitae.storage.state import state_folder

PROCESSES = 2
IN_TIME_S = 55.0
"""After which nothing more is begun."""
BEYOND_CACHES, IN_CACHE = 64 << 20, 512 << 10
"""Bytes of a tensor."""


def calibrate(say: Say) -> Calibration:
    """Measure this machine, in less than a minute. Raises `StorageError`."""
    begin = time.perf_counter()
    select("cpu")
    say("memory")
    memory, passes = _memory()
    say("disk")
    disk = measure_storage(state_folder())
    say(f"{PROCESSES} processes: collectives and pieces")
    together = _together()
    # Threads that wait for each other suffer most of others' work: this may not end, and comes last.
    speeds, products = sweeps(Mesh(), say, ("fp32", "bf16", "autocast"), begin + IN_TIME_S)
    return Calibration(
        machine=identity(),
        made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        took_s=round(time.perf_counter() - begin, 1),
        speeds=(*speeds, *(Speeds(**one) for one in together.pop("speeds"))),
        products=(*products, *(ProductSpeed(**one) for one in together.pop("products"))),
        memory_bytes_per_s=memory,
        pass_bytes_per_s=passes,
        **together,
        **disk,
    )


def _memory() -> tuple[float, float]:
    """Bytes a second of a copy beyond caches, and of a pass inside them; both read and write."""
    large, small = torch.ones(BEYOND_CACHES // 4), torch.ones(IN_CACHE // 4)
    other = torch.empty_like(large)
    copied = timed(lambda: other.copy_(large), budget_s=0.3).best
    passed = timed(lambda: [small.mul_(1.0) for _ in range(20)], budget_s=0.2).best
    return 2 * BEYOND_CACHES / copied, 20 * 2 * IN_CACHE / passed


def _together() -> dict[str, Any]:
    with TemporaryDirectory(prefix="kitae-calibrate-") as name:
        result = Path(name) / "result.json"
        launch = Launch(
            world_size=PROCESSES,
            tp_size=1,
            backend="cpu",
            timeout_s=120,
            logs=Path(name),
            title="calibration",
            on_stop="ending; what was measured before stays",
        )
        entry = f"{measure_rank.__module__}:{measure_rank.__name__}"
        try:
            launch_ranks(entry, {"result": str(result)}, launch)
        except StoppedError:  # nothing goes on from here
            raise KeyboardInterrupt from None
        found: dict[str, Any] = json.loads(result.read_text())
        return found
