"""A recipe is submitted behind a head node, found again, followed and fetched; the cluster is a stand-in."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from job_case import kitae, recipe_values, write_case

import kitae as kitae_package
from kitae.errors import ClusterError, RecipeError, TrainingError
from kitae.launch.ssh import following, link
from kitae.launch.ssh.remote import is_remote, read_remote
from kitae.recipe.load import load_recipe

TOKEN = "hf_thisIsSecret4711"


@pytest.fixture
def case(node, tmp_path, monkeypatch):
    """A recipe with its files; this process works in its folder."""
    folder = tmp_path / "at home"
    write_case(folder, **recipe(node))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(link, "_FIRST_S", 0.1)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    yield folder
    node.end_jobs()  # what attends to them goes then


def recipe(node):
    target = {"kind": "ssh", "host": "head", "folder": str(node.work), "python": sys.executable, "nodes": 2}
    return {"target": target, "training": {"duration": "6 steps", "global_batch_size": 4}}


def files_with(text, *folders):
    found = (path for folder in folders for path in Path(folder).rglob("*") if path.is_file())
    return [path for path in found if text.encode() in path.read_bytes()]


def test_submit_come_back_follow_fetch(node, case, tmp_path, capsys):
    run = case / "runs/tiny"
    assert kitae("train", "recipe.yaml", "--print") == 0
    assert "#SBATCH --nodes=2" in capsys.readouterr().out
    assert node.submitted() == []
    assert not run.exists()

    assert kitae("train", "recipe.yaml", "--detach") == 0
    printed = capsys.readouterr().out
    assert "head: submitted: prepare (job 1), then import (job 2), then train (job 3)" in printed
    assert [line.split()[0] for line in node.submitted()] == ["1", "2", "3"]
    assert "--dependency=afterok:2" in node.submitted()[2]
    assert read_remote(run).run == f"{node.work}/runs/tiny"

    # The token is in one file, which only the user can read.
    kept = node.work / "secrets/tiny"
    assert files_with(TOKEN, node.folder, case, tmp_path / "cache") == [kept]
    assert kept.stat().st_mode & 0o777 == 0o600
    assert f". '{kept}'" in (node.cluster / "script-3").read_text()
    assert f"KITAE_CACHE='{node.work}/cache'" in (node.cluster / "script-3").read_text()
    there = load_recipe(node.work / "runs/tiny/submitted.yaml").recipe
    assert (there.target.kind, there.target.nodes, there.runs) == ("slurm", 2, f"{node.work}/runs")
    assert (Path(there.model.folder) / "config.json").read_bytes() == (
        case / "model/config.json"
    ).read_bytes()

    # The same command finds it, over a connection that drops.
    node.plan("", "refuse", "cut 40", "", "cut 5")
    assert kitae("train", "recipe.yaml", "--detach") == 0
    printed = capsys.readouterr().out
    assert "the connection dropped" in printed
    assert "found the run that was submitted: prepare (job 1) pending, import (job 2) pending" in printed
    assert len(node.submitted()) == 3
    assert kitae("train", "recipe.yaml", "--detach", "--set", "seed=4") == 2
    assert "tiny is in the queue there with another recipe" in capsys.readouterr().err

    lines = follow_and_fetch(node, run)
    assert lines == ["prepare: done", "step 1", "step 2"]
    assert (run / "results.json").read_text() == "{}"
    assert not kept.exists()
    assert files_with(TOKEN, node.folder, case, tmp_path / "cache") == []


def follow_and_fetch(node, run):
    """Let the jobs end, and follow them over drops; the lines of the jobs."""
    far = node.work / "runs/tiny"
    for name, text in (
        ("logs/slurm-prepare.log", "prepare: done\n"),
        ("logs/slurm-train.log", "step 1\nstep 2\n"),
        ("results.json", "{}"),
        ("export/config.json", "{}"),
    ):
        (far / name).parent.mkdir(parents=True, exist_ok=True)
        (far / name).write_text(text)
    node.end_jobs()
    node.plan("cut 90", "refuse")
    told = []
    following.follow(run, told.append)
    assert following.fetch(run, told.append) >= 4
    assert following.fetch(run, told.append) == 0
    return [line for line in told if not line.startswith(("ssh:", "head:"))]


@pytest.fixture
def fetched(node, tmp_path):
    """A run here that stands for one there, with files."""
    from kitae.launch.ssh.remote import Remote, write_remote

    run, far = tmp_path / "runs/far", node.work / "runs/far"
    for name, size in (
        ("metrics.jsonl", 5000),
        ("export/model.safetensors", 200_000),
        ("logs/rank-0.log", 10),
    ):
        (far / name).parent.mkdir(parents=True, exist_ok=True)
        (far / name).write_bytes(os.urandom(size))
    rsync = shutil.which("rsync") is not None
    source = str(Path(kitae_package.__file__).parents[1])
    write_remote(
        run, Remote("head", str(node.work), "far", sys.executable, sys.executable, source, rsync=rsync)
    )
    return run, far


@pytest.mark.parametrize("rsync", [True, False])
def test_only_what_is_new_is_fetched_and_a_drop_loses_nothing(node, fetched, rsync, monkeypatch):
    run, far = fetched
    if not rsync:
        monkeypatch.setattr(following.shutil, "which", lambda name: None)
    (run / "export").mkdir()
    (run / "export/model-00002-of-00002.safetensors").touch()
    node.plan("", "cut 8" if rsync else "cut 8000")
    told = []
    assert following.fetch(run, told.append) == 3
    assert "the connection dropped" in told[1]
    for path in far.rglob("*.*"):
        assert (run / path.relative_to(far)).read_bytes() == path.read_bytes()
    assert not (run / "export/model-00002-of-00002.safetensors").exists()
    with (far / "metrics.jsonl").open("ab") as file:
        file.write(b"more\n")
    assert following.fetch(run, told.append) == 1
    assert (run / "metrics.jsonl").read_bytes() == (far / "metrics.jsonl").read_bytes()


def test_a_head_node_cannot_write_outside_of_the_run(node, fetched, monkeypatch):
    run, _ = fetched
    for name in ("../../.profile", "/etc/passwd"):
        answer = {"files": [[name, 1, 1]]}
        monkeypatch.setattr(link.Head, "ask", lambda self, verb, answer=answer, **request: answer)
        with pytest.raises(ClusterError, match="head names a file outside of the run"):
            following.fetch(run, lambda line: None)
    assert [one.name for one in run.iterdir()] == ["remote.json"]


def test_any_verb_runs_there(node, fetched, capfdbinary):
    run, far = fetched
    (far / "recipe.yaml").write_text("kitae: 1\n")
    assert following.run_there(run, ["--version"]) == 0
    assert capfdbinary.readouterr().out.startswith(b"kitae ")
    assert following.output_there(run, ["--version"]).startswith("kitae ")
    assert following.run_there(run, ["train", "RUN"]) == 2


def test_a_run_that_failed_there_ends_with_its_exit_code(node, fetched):
    run, far = fetched
    (far / "slurm.json").write_text(json.dumps({"jobs": [{"stage": "train", "number": 1}]}))
    (far / "logs/slurm-train.log").write_text("step 1\nerror: the loss is not finite\n")
    (node.cluster / "number").write_text("1")
    (node.cluster / "state-1").write_text("FAILED")
    with pytest.raises(TrainingError, match=r"^head: train \(job 1\) failed: error: the loss is not finite$"):
        following.follow(run, lambda line: None)


def test_a_run_of_this_machine_is_not_taken_for_one_there(node, case, capsys):
    (case / "runs/tiny").mkdir(parents=True)
    (case / "runs/tiny/run.json").write_text("{}")
    assert kitae("train", "recipe.yaml", "--detach") == 2
    assert "is a run of this machine; give the one on head another name" in capsys.readouterr().err
    assert not is_remote(case / "runs/tiny")
    with pytest.raises(RecipeError, match="is no run on a head node"):
        read_remote(case / "runs/tiny")


def test_a_file_that_is_nowhere_is_told(node, case, capsys):
    assert kitae("train", "recipe.yaml", "--set", "model.folder=nowhere", "--detach") == 2
    assert f"{case}/nowhere: no such file or folder, neither here nor on head" in capsys.readouterr().err
    assert node.submitted() == []
    assert recipe_values()["name"] == "tiny"
