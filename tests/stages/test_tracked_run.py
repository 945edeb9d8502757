"""A run with trackers, from the command line: told before anything starts, or followed by one process."""

import json

import pytest
from job_case import kitae, write_case, write_recipe

TRACKED = {"trackers": ["tensorboard", "mlflow"], "project": "proof"}


@pytest.fixture(autouse=True)
def _local(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_ALLOW_FILE_STORE"):
        monkeypatch.delenv(name, raising=False)


def test_a_missing_package_is_told_before_the_text_is_read(tmp_path, monkeypatch, capsys):
    recipe = write_recipe(tmp_path, tracking={"trackers": ["wandb"]})  # neither text nor model is there
    monkeypatch.setattr("kitae.train.tracking.table.find_spec", lambda name: None)
    assert kitae("train", recipe) == 2
    message = capsys.readouterr().err
    assert (
        "tracking.trackers: wandb needs wandb, which is not installed; pip install 'kitae[wandb]'" in message
    )
    assert not (tmp_path / "cache" / "data").exists()


def test_what_needs_no_tracker_works_without(tmp_path, monkeypatch):
    recipe = write_case(tmp_path, tracking={"trackers": ["wandb"]})
    monkeypatch.setattr("kitae.train.tracking.table.find_spec", lambda name: None)
    assert kitae("prepare", recipe) == 0


def losses(run):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [(one["step"], one["loss"]) for one in lines if one["kind"] == "train"]


@pytest.mark.system
@pytest.mark.parametrize("copies", [1, 2])
def test_one_process_tracks_and_a_second_start_doubles_nothing(tmp_path, copies):
    """Two attempts, of which the second has nothing left to train: one run, each step once, the same bits."""
    client = pytest.importorskip("mlflow.tracking")
    parallel = {"parallel": {"data_parallel_size": copies}}
    recipe = write_case(tmp_path, tracking=TRACKED, **parallel)
    assert kitae("train", recipe) == 0
    assert kitae("train", recipe) == 0
    runs = tmp_path / "runs"
    assert len(list((runs / "tiny" / "tensorboard").glob("events.*"))) == 1
    there = client.MlflowClient(tracking_uri=f"sqlite:///{runs / 'mlflow.db'}")
    (tracked,) = there.search_runs([there.get_experiment_by_name("proof").experiment_id])
    history = there.get_metric_history(tracked.info.run_id, "train/loss")
    assert [(one.step, one.value) for one in history] == losses(runs / "tiny")
    assert kitae("train", recipe, "--set", "name=plain", "--set", "tracking.trackers=[]") == 0
    assert losses(runs / "plain") == losses(runs / "tiny")
    assert not (runs / "plain" / "tracking.json").exists()
