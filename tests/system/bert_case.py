"""The BERT recipes of the repository, run as a person runs them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


def build_japanese() -> None:
    """What the recipes read; found in the cache when it was made before."""
    done = subprocess.run([sys.executable, RECIPES / "japanese" / "build.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def kill_after(words: list[str], step: int, *, folder: Path, name: str) -> None:
    """Start a run and kill it as soon as it has written down that step."""
    command = [sys.executable, "-m", "kitae.cli.main", *words]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while len(losses(folder, name)) < step:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    process.kill()
    process.communicate()


def losses(folder: Path, name: str) -> list[float]:
    """Of the updates that a run has written down."""
    metrics = folder / "runs" / name / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    records = [json.loads(line) for line in lines if line.endswith("}")]
    return [record["loss"] for record in records if record["kind"] == "train"]


def results_of(folder: Path, name: str) -> dict[str, Any]:
    """The file `results.json` of a run."""
    return json.loads((folder / "runs" / name / "results.json").read_text())  # type: ignore[no-any-return]
