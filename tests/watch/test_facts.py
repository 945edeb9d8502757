"""What a run's folder tells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from recorded_runs import BEGUN, BEGUN_S, attempt, update, write_run

from kitae.errors import RecipeError
from kitae.stages.run_folder import RunFolder, now
from kitae.watch.facts import RunFacts, find_run, life_of, price_of, progress_of, runs_in, seconds_since_1970


def test_progress_is_that_of_the_last_updates(tmp_path: Path):
    """1,000 tokens in 2 s each, but for the first, which warms up: 500 tokens/s; 6 of 10 steps are left."""
    progress = progress_of(write_run(tmp_path, [attempt()], steps=4))
    assert (progress.step, progress.steps, progress.loss) == (4, 10, 2.6)
    assert (progress.tokens_per_s, progress.step_seconds, progress.seconds_left) == (500.0, 2.0, 12.0)


def test_progress_before_the_first_update(tmp_path: Path):
    progress = progress_of(write_run(tmp_path, [attempt()]))
    assert (progress.step, progress.loss, progress.seconds_left) == (None, None, None)


def test_an_only_update_counts_although_it_warms_up(tmp_path: Path):
    progress = progress_of(write_run(tmp_path, [attempt()], steps=1))
    assert (progress.step, progress.step_seconds) == (1, 9.0)
    assert progress.tokens_per_s == pytest.approx(1000 / 9)


def test_steps_of_a_run_of_an_older_kitae_are_those_of_its_results(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text('{"kind": "start", "step": 0}\n')
    assert progress_of(tmp_path).steps is None
    (tmp_path / "results.json").write_text('{"steps": 7}')
    assert progress_of(tmp_path).steps == 7


def test_the_last_sign_is_the_newest_file(tmp_path: Path):
    run = write_run(tmp_path, [attempt()], steps=2)
    assert RunFacts.read(run).last_sign == BEGUN_S + 60
    log = run / "logs/rank-1.log"
    log.write_text("x")
    os.utime(log, (BEGUN_S + 99, BEGUN_S + 99))
    assert RunFacts.read(run).last_sign == BEGUN_S + 99


def test_times_of_run_json():
    assert seconds_since_1970(BEGUN) == BEGUN_S


def test_the_price_is_that_of_the_recipe(tmp_path: Path):
    assert price_of(tmp_path) is None
    (tmp_path / "submitted.yaml").write_text("target: {price_per_node_hour: 21.5}")
    assert price_of(tmp_path) == 21.5
    (tmp_path / "recipe.yaml").write_text("target: {price_per_node_hour: null}")
    assert price_of(tmp_path) == 21.5
    (tmp_path / "recipe.yaml").write_text("{")
    assert price_of(tmp_path) == 21.5


def test_an_attempt_names_its_process_its_machine_and_why_it_ended(tmp_path: Path):
    run = RunFolder(tmp_path)
    run.facts["last"] = "train"

    def work() -> None:
        with run.attempt():
            (running,) = RunFolder(tmp_path).state["attempts"]
            assert life_of(running) == "alive"
            raise RecipeError("seed: wrong")

    with pytest.raises(RecipeError):
        work()
    (ended,) = RunFolder(tmp_path).state["attempts"]
    assert (ended["outcome"], ended["why"], ended["last"]) == ("failed", "seed: wrong", "train")


def test_life_of_processes():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        record = {"pid": process.pid, "host": "here", "started": now()}
        assert life_of(record, here="here") == "alive"
        assert life_of(record, here="there") == "elsewhere"
        # A process of that number which began long after the attempt is another one.
        assert life_of({**record, "started": BEGUN}, here="here") == "gone"
        process.kill()
        psutil.wait_procs([psutil.Process(process.pid)])
    assert life_of(record, here="here") == "gone"
    assert life_of({"pid": None, "started": now()}) == "gone"


def test_a_run_is_found_by_its_folder_or_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run = write_run(tmp_path / "runs/a run")
    assert find_run(Path("runs/a run")) == run
    assert find_run(Path("a run")) == run
    with pytest.raises(RecipeError, match="nope: there is no such run; kitae ps lists"):
        find_run(Path("nope"))
    with pytest.raises(RecipeError, match=r"runs is no run of kitae: there is no run\.json in it"):
        find_run(Path("runs"))


def test_runs_of_a_folder(tmp_path: Path):
    write_run(tmp_path / "b")
    write_run(tmp_path / "a")
    (tmp_path / "other").mkdir()
    (tmp_path / "submitted-only").mkdir()
    (tmp_path / "submitted-only/slurm.json").write_text("{}")
    assert [one.name for one in runs_in(tmp_path)] == ["a", "b", "submitted-only"]
    with pytest.raises(RecipeError, match=r"--runs: .*none cannot be read"):
        runs_in(tmp_path / "none")


def test_updates_have_the_form_of_recorded_ones():
    assert update(1)["first_step"] is True
    assert update(2)["first_step"] is False
