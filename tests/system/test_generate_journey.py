"""The demo model answers, in one process and in three, until somebody presses Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from demo_case import run_kitae

from kitae.checkpoint.fetch import model_folder
from kitae.recipe.sources import ModelConfig
from kitae.stages.job import cache_folder

pytestmark = pytest.mark.system
ASK = ("--prompt", "The capital of France is", "--no-chat", "--max-new-tokens", "8", "--json")


@pytest.fixture(scope="module")
def model() -> Path:
    """The demo model as kitae keeps it."""
    pytest.importorskip("gguf")
    return model_folder(
        ModelConfig(named="smollm2-135m"), base=Path.cwd(), cache=cache_folder(), report=print
    )


def generated(model: Path, folder: Path, *words: str) -> dict:
    found = run_kitae("generate", model, *ASK, *words, folder=folder)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def test_one_process_and_three_give_the_same_text(model: Path, tmp_path: Path):
    one = generated(model, tmp_path)
    assert one["text"].startswith(" Paris")
    assert generated(model, tmp_path, "--tp", "3")["ids"] == one["ids"]
    assert generated(model, tmp_path, "--quantize", "int8")["text"].startswith(" Paris")


def test_ctrl_c_while_ranks_stream_ends_them_and_keeps_the_text(model: Path, tmp_path: Path):
    words = ("--prompt", "Once upon a time", "--no-chat", "--stream", "--tp", "3", "--max-new-tokens", "2000")
    command = [sys.executable, "-m", "kitae.cli.main", "generate", str(model), *words]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    shown = process.stdout.read(len("Once upon a time") + 5)
    os.kill(process.pid, signal.SIGINT)
    rest, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert shown.startswith("Once upon a time")
    assert rest.endswith("\n")
    assert "SIGINT: stopping after this token" in said
    assert "tokens; the first after" in said
    assert said.splitlines()[-1] == "interrupted"
    assert "Traceback" not in said


def test_int8_costs_less_than_a_hundredth_of_perplexity(model: Path, tmp_path: Path):
    text = Path(__file__).resolve().parents[2] / "docs" / "checkpoints.md"
    words = ("--data", text, "--document", "paragraph", "--quantize", "int8", "--json")
    found = run_kitae("eval", model, *words, folder=tmp_path)
    assert found.returncode == 0, found.stderr
    judged = json.loads(found.stdout)
    assert judged["tokens"] > 1000
    assert abs(judged["perplexity_cost"]) < 0.01
