"""How long `kitae cluster check` takes, with ParallelCluster's own schema and without it, in turns.

    python benchmarks/check_cluster.py [--rounds 7]

Seconds of the processor count where other programs run beside it.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path


def seconds(words: list[str], folder: Path, environment: Mapping[str, str]) -> tuple[float, float]:
    """Wall and processor seconds of a command and its children."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, cwd=folder, env=dict(environment), capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begun, used


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    kitae = [sys.executable, "-m", "kitae", "cluster"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([*kitae, "init"], cwd=folder, capture_output=True, check=True)
        sides = {
            "with the schema": dict(os.environ),
            "without": {**os.environ, "KITAE_CACHE": str(folder / "empty"), "KITAE_PCLUSTER": ""},
        }
        taken: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
        for _ in range(rounds):
            for side, environment in sides.items():
                taken[side].append(seconds([*kitae, "check", "cluster.yaml"], folder, environment))
    for side, found in taken.items():
        wall, used = (statistics.median(column) for column in zip(*found, strict=True))
        longest = max(one for one, _ in found)
        print(f"{side}: {wall:.2f} s (at most {longest:.2f}), of the processor {used:.2f} s; {rounds} rounds")


if __name__ == "__main__":
    main()
