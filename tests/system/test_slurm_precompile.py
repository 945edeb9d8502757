"""Graphs compiled ahead by a job of a real Slurm, on as many nodes as train, each into its own cache."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from demo_case import run_kitae
from job_case import write_case
from slurm import Shape, slurm

import kitae
from kitae.launch.slurm.chain import CHAIN, Submission
from kitae.launch.slurm.commands import Slurm as Commands
from kitae.precompile.cache_neuron import entries

pytestmark = pytest.mark.system

STANDIN = Path(__file__).parents[1] / "support/standin_neuron"
NAMES = ["MODULE_11111111111111111111+d41d8cd9", "MODULE_22222222222222222222+d41d8cd9"]
LOCAL = ("target.kind=local", "target.nodes=1", "target.backend=cpu")
JOB_S = 150.0


def test_every_node_compiles_into_its_own_cache(tmp_path: Path, monkeypatch):
    graphs = [
        {"name": name, "phase": phase, "fate": "ok"}
        for name, phase in zip(NAMES, ("update", "evaluate"), strict=True)
    ]
    (tmp_path / "plan.json").write_text(json.dumps({"graphs": graphs}))
    source = Path(kitae.__file__).parents[1]
    variables = {
        "KITAE_CACHE": tmp_path / "cache",
        "OMP_NUM_THREADS": 1,
        "PYTHONPATH": os.pathsep.join([str(STANDIN), str(source)]),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.chdir(tmp_path)
    target = {
        "kind": "slurm",
        "nodes": 2,
        "processes_per_node": 1,
        "backend": "xla",
        "setup": [
            f"export PATH={STANDIN}:$PATH STANDIN_NEURON_ROOT={tmp_path}/neuron",
            f"export STANDIN_NEURON_PLAN={tmp_path}/plan.json",
        ],
    }
    write_case(tmp_path, target=target)
    local = [word for change in LOCAL for word in ("--set", change)]
    ready = run_kitae("import", "recipe.yaml", *local, folder=tmp_path)
    assert ready.returncode == 0, ready.stderr
    with slurm(tmp_path / "slurm", Shape(nodes=2)) as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        submission = Submission.of(tmp_path / "recipe.yaml", [], print, Commands())
        assert [task.stage for task in submission.tasks("train")] == [
            "prepare",
            "import",
            "precompile",
            "train",
        ]
        (job,) = submission.submit_tasks([task for _, task in CHAIN if task.all_nodes])
        cluster.wait_for_state(job.number, "COMPLETED", "FAILED", timeout_s=JOB_S)
        log = (tmp_path / "runs/tiny/logs/slurm-precompile.log").read_text()
        assert cluster.job(job.number)["JobState"] == "COMPLETED", log
        assert cluster.job(job.number)["NumNodes"] == "2"
    assert "precompile: complete: 2 graphs are compiled on each of n1, n2 (update, evaluate)" in log
    for node in ("n1", "n2"):
        assert [(entry.name, entry.state) for entry in entries(tmp_path / "neuron" / node)] == [
            (name, "done") for name in NAMES
        ]
    assert not (tmp_path / "runs/tiny/checkpoints").exists()
