"""The demo recipe, run as a person runs it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def no_network() -> list[str]:
    """What runs a command in a network of its own with nothing in it; nothing where that is not allowed."""
    words = ["unshare", "--net"]
    if shutil.which("unshare") is None:
        return []
    allowed = subprocess.run([*words, "true"], capture_output=True).returncode == 0
    return words if allowed else []


RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "smollm2-ja-demo.yaml"


def run_kitae(
    *words: str | Path, folder: Path, timeout_s: float = 1500, offline: bool = False
) -> subprocess.CompletedProcess[str]:
    """A command line in a process of its own, started in `folder`; `offline`: without any network."""
    command = [*(no_network() if offline else ()), sys.executable, "-m", "kitae.cli.main", *map(str, words)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s)
