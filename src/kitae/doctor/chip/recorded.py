"""The losses that a CPU has, to which those of another machine are compared.

    python -m kitae.doctor.chip.recorded

records them anew, into the package, and says by how much they differ from those that were there.
"""

from __future__ import annotations

import json
import math
import tempfile
from importlib import resources
from pathlib import Path

from kitae.train.metrics import read_records

FILE = "losses.json"
TOLERANCES = {"cpu": 1e-5, "xla-cpu": 1e-4}
"""By stack: the largest difference of a loss from the recorded one, relative to that, in fp32. A processor's
libraries sum in other orders, no more, and 12 updates make that grow; a chip may also multiply otherwise."""
TOLERANCE, TOLERANCE_BF16 = 1e-3, 1e-2
"""Of other stacks; and of bf16, on any."""


def losses_of(folder: Path) -> list[float]:
    """Of a training's updates and evaluations, in their order."""
    records = read_records(folder / "run" / "metrics.jsonl")
    return [one["loss"] for one in records if one["kind"] in ("train", "evaluation")]


def tolerance(stack: str, precision: str) -> float:
    """What is allowed of a training."""
    return TOLERANCE_BF16 if precision == "bf16" else TOLERANCES.get(stack, TOLERANCE)


def recorded() -> dict[str, list[float]]:
    """By case, in fp32."""
    text = resources.files("kitae.doctor.chip").joinpath(FILE).read_text(encoding="utf-8")
    found: dict[str, list[float]] = json.loads(text)["losses"]
    return found


def difference(found: list[float], expected: list[float]) -> float:
    """Largest relative difference; infinite where there are more or fewer, or one is no number."""
    if len(found) != len(expected) or not all(map(math.isfinite, found)):
        return math.inf
    return max(abs(one - other) / abs(other) for one, other in zip(found, expected, strict=True))


def record() -> dict[str, list[float]]:
    """Train every case on the CPU in fp32."""
    from kitae.backend.table import select
    from kitae.doctor.chip.cases import CASES, job_of
    from kitae.train.loop import train

    found = {}
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            train(job_of(case, Path(folder), select("cpu"), "fp32"))
            found[name] = losses_of(Path(folder))
    return found


def main() -> None:
    """Write what a CPU has now."""
    import torch

    found, before = record(), recorded() if _path().exists() else {}
    text = json.dumps({"torch": torch.__version__, "losses": found}, indent=1)
    _path().write_text(f"{text}\n", encoding="utf-8")
    for name, values in found.items():
        changed = f"{difference(values, before[name]):.1e}" if name in before else "new"
        print(f"{name}: {values[0]:.4f} to {values[-1]:.4f}; difference from before: {changed}")


def _path() -> Path:
    return Path(__file__).with_name(FILE)


if __name__ == "__main__":
    main()
