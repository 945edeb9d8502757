"""`kitae resume`, `ps` and `logs` on a run that trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from job_case import kitae, write_case


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained, and whose results are gone."""
    folder = tmp_path_factory.mktemp("resumed")
    recipe = write_case(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("KITAE_CACHE", str(folder / "cache"))
        assert kitae("train", recipe) == 0
    return folder


@pytest.fixture(autouse=True)
def _at(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KITAE_CACHE", str(folder / "cache"))


def test_a_run_goes_on_up_to_the_stage_that_it_was_started_for(capsys):
    assert kitae("resume", "tiny") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "train: skipped, its result is there"
    assert not Path("runs/tiny/export").exists()


def test_a_run_of_this_machine_goes_on_on_nodes_of_a_cluster(capsys):
    """What it was resolved to here, one process, is chosen anew."""
    results = Path("runs/tiny/results.json")
    content = results.read_bytes()
    results.unlink()
    words = ("--target", "slurm", "--nodes", "2", "--print")
    assert kitae("resume", "runs/tiny", *words) == 0
    shown = capsys.readouterr().out
    assert "#SBATCH --nodes=2\n" in shown
    assert f"-m kitae.launch.slurm.batch {Path('runs/tiny').absolute()}\n" in shown
    results.write_bytes(content)


def test_a_submitted_run_goes_on_here(capsys):
    run = Path("runs/tiny").rename("runs/moved")
    text = (run / "recipe.yaml").read_text()
    (run / "submitted.yaml").write_text(
        text.replace("data_parallel_size: 1", "data_parallel_size: auto")
        .replace("kind: local", "kind: slurm")
        .replace("  nodes: 1\n", "  nodes: 2\n")
        .replace("processes_per_node: 1", "processes_per_node: auto")
    )
    assert kitae("resume", "moved", "--target", "local") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "train: skipped, its result is there"
    (run / "submitted.yaml").unlink()
    run.rename("runs/tiny")


def test_what_is_seen_of_it(capsys):
    assert kitae("ps", "--json") == 0
    (seen,) = json.loads(capsys.readouterr().out)
    updates = [json.loads(line) for line in Path("runs/tiny/metrics.jsonl").read_text().splitlines()]
    assert (seen["state"], seen["why"], seen["step"], seen["steps"]) == ("done", "train", 6, 6)
    assert seen["loss"] == [one["loss"] for one in updates if one["kind"] == "train"][-1]
    assert kitae("logs", "tiny", "--lines", "1") == 0
    assert capsys.readouterr().out.rstrip().endswith("train: skipped, its result is there")
