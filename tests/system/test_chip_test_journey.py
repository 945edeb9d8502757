"""`kitae doctor --chip-test` on this machine, as a person types it: every part, and the page."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system
COMMAND = [sys.executable, "-m", "kitae", "doctor", "--chip-test", "--backend", "cpu", "--out"]


def page(folder: Path) -> dict[str, str]:
    parts = json.loads((folder / "chip-test.json").read_text())["parts"]
    return {name: one["verdict"] for name, one in parts.items()}


def test_everything_passes_on_a_cpu(tmp_path: Path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*COMMAND, tmp_path], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = page(tmp_path)
    assert verdicts.pop("attention kernel") == "left out"
    assert set(verdicts.values()) == {"passed"}
    text = (tmp_path / "chip-test.md").read_text()
    assert "| all_reduce | 16,777,216 |" in text
    assert "| decoder fp32 |" in text


def test_ctrl_c_leaves_a_partial_page(tmp_path: Path):
    """As soon as the first part is on the page, the terminal's signal comes to all of its processes."""
    process = subprocess.Popen(
        [*COMMAND, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("losses …"):
            break
    os.killpg(process.pid, signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait() != 0
    assert "Traceback" not in rest
    found = page(tmp_path)
    assert found["collectives"] == "passed"
    assert found["rounding"] == found["precompile"] == "not reached"
