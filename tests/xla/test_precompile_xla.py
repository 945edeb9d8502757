"""`kitae precompile` on torch-xla's CPU: the trial meets every graph that the training uses (row 14; T57)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from job_case import write_case

import kitae
from kitae.precompile.module_file import numbers, parse_module

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

SOURCE = Path(kitae.__file__).parents[1]


def run(folder: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "PJRT_DEVICE": "CPU",
        "KITAE_CACHE": str(folder / "cache"),
    }
    command = [sys.executable, "-m", "kitae.cli.main", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def keys(*files: Path) -> set[tuple[str, str]]:
    graphs = [one for file in files for one in json.loads(file.read_text())["graphs"]]
    return {(one["phase"], one["key"]) for one in graphs}


def test_a_trial_run_meets_every_graph_of_the_training(tmp_path: Path):
    """55 rows in updates of 4: the last update is smaller, and so is the trial's."""
    training = {"duration": "1 epochs", "global_batch_size": 4, "micro_batch_size": 2}
    write_case(
        tmp_path, training=training, checkpoint={"every": "5 steps"}, sample=None, target={"backend": "xla"}
    )
    done = run(tmp_path, "precompile", "recipe.yaml")
    assert "precompile: complete: " in done.stdout
    folder = tmp_path / "runs/tiny"
    trial = keys(folder / "precompile/trial/graphs-first.json", folder / "precompile/trial/graphs.json")
    run(tmp_path, "train", "recipe.yaml")
    used = keys(folder / "graphs.json")
    assert used <= trial
    assert {phase for phase, _ in trial - used} == {"resume"}
    assert {"train/first", "train/last", "update", "evaluate"} <= {phase for phase, _ in used}
    said = run(tmp_path, "precompile", "--of", "runs/tiny").stdout
    assert f"{len(used)} graphs were used\nall of them are in the cache now" in said
    assert "the trial run has not met" not in said
    # One artefact less: the phase is named.
    needed = json.loads((folder / "precompile/answer.json").read_text())["needed"]
    name = next(one["name"] for one in needed if one["phase"] == "evaluate")
    next((tmp_path / "cache/compiled").rglob(name)).unlink()
    assert f"evaluate: {name}: never seen" in run(tmp_path, "precompile", "--of", "runs/tiny", code=9).stderr


def test_a_graph_is_read_as_torch_xla_shows_it():
    import torch
    import torch_xla

    left = torch.ones(3, 5, dtype=torch.bfloat16).to(torch_xla.device())
    torch_xla.sync()
    product = torch.nn.functional.pad(left @ left.T, (1, 1), value=7.0)
    module = parse_module(torch_xla._XLAC._get_xla_tensors_hlo_proto([product]))
    text = torch_xla._XLAC._get_xla_tensors_hlo([product])
    assert [str(one) for one in module.parameters] == ["bf16[3,5]"]
    assert str(module.results) == "(bf16[3,5])"
    for one in module.instructions:
        assert f"{one.opcode}(" in text
    assert len(module.instructions) == text.count(" = ")
    assert "constant(7)" in text
    constants = [one for one in module.instructions if one.opcode == "constant"]
    assert len(constants) == 1
    assert numbers(constants[0].constant) == ()  # bf16 is told as bytes
