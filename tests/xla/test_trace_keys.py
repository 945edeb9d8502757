"""The programs that are traced are those that a training has: their keys are the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla
PRECISIONS = ("fp32", "bf16", "bf16-sr", "autocast")


@pytest.fixture(scope="module")
def found():
    command = [sys.executable, str(Path(__file__).with_name("trained_case.py")), *PRECISIONS]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_keys_are_those_of_the_training(found, precision):
    """Every graph of a training with evaluations and saves, by its name."""
    trained, traced = found[precision]
    assert {*trained} == {"begin", "evaluate", "train/first", "train/middle", "train/last", "update"}
    assert traced == trained
