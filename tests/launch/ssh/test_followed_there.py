"""`kitae ps` and `kitae logs` of a run behind a head node, through a stand-in of ssh."""

from __future__ import annotations

import json
import sys

import pytest
from job_case import kitae, write_case
from recorded_runs import write_log


@pytest.fixture
def run(node, tmp_path, monkeypatch):
    """The folder there of a run that was submitted from here."""
    folder = tmp_path / "at home"
    target = {"kind": "ssh", "host": "head", "folder": str(node.work), "python": sys.executable, "nodes": 2}
    write_case(folder, target=target)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert kitae("train", "recipe.yaml", "--detach") == 0
    yield node.work / "runs/tiny"
    node.end_jobs()


def test_a_run_is_seen_and_read_from_here(node, run, capfd):
    capfd.readouterr()
    assert kitae("ps") == 0
    head, row = capfd.readouterr().out.splitlines()
    assert head.split()[:2] == ["run", "state"]
    assert row.split()[:2] == ["tiny", "waiting"]
    assert row.endswith("head: prepare, job 1: to be looked at by Slurm")
    assert kitae("ps", "--json") == 0
    (seen,) = json.loads(capfd.readouterr().out)
    assert (seen["head"], seen["job"], seen["path"]) == ("head", 1, str(run))
    write_log(run, 0, "one", "two", "three")
    assert kitae("logs", "tiny", "--lines", "2") == 0
    assert capfd.readouterr().out.splitlines() == ["two", "three"]
    assert kitae("logs", "tiny", "--rank", "5") == 2
    assert "has no log of rank 5; there are those of ranks 0 to 0" in capfd.readouterr().err
    assert kitae("resume", "tiny") == 1
    assert "tiny: waiting: prepare, job 1" in capfd.readouterr().err
