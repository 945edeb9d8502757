"""What processes on torch-xla share: keys of graphs, and a training that one leaves and the next ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kitae

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

VICTIM = Path(__file__).with_name("xla_victim.py")
NEVER = 99


def process(folder: Path, last: int = NEVER) -> subprocess.CompletedProcess[str]:
    places = [Path(kitae.__file__).parents[1], VICTIM.parent, VICTIM.parents[1] / "train"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    command = [sys.executable, str(VICTIM), str(folder), str(last)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def result(done: subprocess.CompletedProcess[str]) -> dict:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_killed_and_resumed_is_the_straight_run_without_new_graphs(tmp_path):
    """To the bit, also where weights are rounded by chance; and the keys are those of another process."""
    straight = result(process(tmp_path / "straight"))
    killed = process(tmp_path / "killed", last=4)
    assert killed.returncode == -signal.SIGKILL
    resumed = result(process(tmp_path / "killed"))
    assert resumed["losses"] == straight["losses"]
    assert {name: key for name, key in resumed["keys"].items() if name != "resume"} == {
        name: key for name, key in straight["keys"].items() if name != "begin"
    }
    assert set(straight["keys"]) == {
        "begin",
        "evaluate",
        "train/first",
        "train/last",
        "update",
    }
    for one in (straight, resumed):
        assert one["compiled"] == len(set(one["keys"].values()))
