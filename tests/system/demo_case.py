"""The demo recipe, run as a person runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "smollm2-ja-demo.yaml"


def run_kitae(*words: str | Path, folder: Path, timeout_s: float = 1500) -> subprocess.CompletedProcess[str]:
    """A command line in a process of its own, started in `folder`."""
    command = [sys.executable, "-m", "kitae.cli.main", *map(str, words)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s)
