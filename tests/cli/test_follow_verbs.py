"""`kitae ps`, `logs`, `cancel` and `resume` as commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from recorded_runs import attempt, write_log, write_run

import kitae
from kitae.cli.main import main


@pytest.fixture(autouse=True)
def _at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))  # no Slurm


def write(name: str, *attempts: dict[str, object], **options: object) -> Path:
    return write_run(Path("runs") / name, attempts, **{"signed": time.time(), **options})


def test_ps_shows_runs_at_work_first_and_those_of_a_day(capsys):
    write("ended", attempt("finished", last="prove"), steps=10)
    write("works", attempt(host=os.uname().nodename, pid=1, started="9999-01-01T00:00:00+00:00"), steps=4)
    write("old", attempt("failed"), signed=time.time() - 90_000)
    assert main(["ps"]) == 0
    output = capsys.readouterr()
    head, *rows = output.out.splitlines()
    assert head.split()[:3] == ["run", "state", "step"]
    assert [row.split()[:3] for row in rows] == [["works", "running", "4/10"], ["ended", "done", "10/10"]]
    assert output.err == "1 more ended over a day ago: --all\n"
    assert main(["ps", "--all", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["run"] for one in shown] == ["works", "ended", "old"]


def test_ps_says_that_slurm_cannot_be_asked(capsys):
    write("a", jobs=[("prepare", 7)])
    assert main(["ps"]) == 0
    output = capsys.readouterr()
    assert "submitted as job 7; what became of it only Slurm can tell" in output.out
    assert output.err.startswith("there is no squeue here")


def test_ps_without_runs(tmp_path: Path, capsys):
    assert main(["ps"]) == 2
    assert capsys.readouterr().err.startswith("error: --runs: runs cannot be read (No such file")
    Path("runs").mkdir()
    assert main(["ps", "--json"]) == 0
    output = capsys.readouterr()
    assert (output.out, output.err) == ("[]\n", "there are no runs in runs\n")


def test_logs_shows_the_last_lines(capsys):
    run = write("a", attempt("finished"))
    write_log(run, 0, *(f"line {number}" for number in range(50)))
    write_log(run, 1, "other")
    assert main(["logs", "a"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"line {number}" for number in range(10, 50)]
    assert main(["logs", "runs/a", "--rank", "1", "--lines", "3"]) == 0
    assert capsys.readouterr().out == "other\n"


def test_logs_follow_ends_with_the_run(capsys):
    write_log(write("a", attempt("stopped", why="stopped by SIGTERM")), 0, "first", "last")
    assert main(["logs", "a", "-f", "--lines", "1"]) == 0
    output = capsys.readouterr()
    assert (output.out, output.err) == ("last\n", "a: stopped: stopped by SIGTERM\n")


def test_logs_first_failure(capsys):
    run = write("a", attempt("failed", why="rank 1: row 7 is broken"))
    log = write_log(
        run, 1, "---- 2026-11-30T19:00:01+0000 attempt 1: rank 1 of 2", "x", "DataError: row 7 is broken"
    )
    assert main(["logs", "a", "--first-failure", "--lines", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "attempt 1, rank 1: rank 1: row 7 is broken",
        f"{log.absolute()}:",
        "  x",
        "  DataError: row 7 is broken",
    ]
    write("b", attempt("finished", last="prove"))
    assert main(["logs", "b", "--first-failure"]) == 0
    assert capsys.readouterr().err == "nothing has failed (b: done)\n"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["logs", "nope"], 2, "nope: there is no such run"),
        (["logs", "runs"], 2, "runs is no run of kitae"),
        (["logs", "a"], 2, "has no log of rank 0; no process has begun yet"),
        (["logs", "a", "-f"], 2, "has no log of rank 0"),
        (["logs", "a", "--rank", "-1"], 2, "--rank"),
        (["logs", "a", "--first-failure", "-f"], 2, "leave --follow and --rank out"),
        (["cancel", "nope"], 2, "nope: there is no such run"),
        (["resume", "nope"], 2, "nope: there is no such run"),
        (["cancel", "elsewhere"], 1, "is process 4242 on far, which cannot be reached from here"),
        (["resume", "elsewhere"], 1, "follow it with kitae logs -f, or end it with kitae cancel"),
        (["resume", "a"], 2, "is neither a recipe nor a run of kitae: there is no recipe.yaml in it"),
        (["resume", "a", "--target", "slurm"], 2, "is neither a recipe nor a run"),
    ],
)
def test_what_cannot_be_done_is_one_message(words, code, message, capsys):
    write("a", attempt("stopped"))
    write("elsewhere", attempt(host="far"))
    assert main(words) == code
    errors = capsys.readouterr().err
    assert errors.startswith("error: ")
    assert message in errors
    assert errors.count("\n") == 1


def test_cancel_of_what_has_ended_is_no_error(capsys):
    write("a", attempt("finished", last="train"))
    assert main(["cancel", "a"]) == 0
    assert capsys.readouterr().err == "there is nothing to end: a: done: train\n"


@pytest.mark.parametrize(
    "words", [["ps", "--runs", "runs"], ["logs", "a"], ["resume", "--help"], ["cancel", "a"]]
)
def test_nothing_heavy_is_imported_to_look_at_runs(words):
    write_log(write("a", attempt("finished")), 0, "line")
    code = (
        f"import sys; from kitae.cli.main import main; main({words}); "
        "sys.exit(str(sorted({'torch', 'transformers', 'numpy', 'pyarrow'} & set(sys.modules))))"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(kitae.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stderr.splitlines()[-1] == "[]"
