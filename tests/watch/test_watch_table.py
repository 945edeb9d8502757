"""Runs as rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_runs import BEGUN_S, attempt, write_run

from kitae.watch.facts import RunFacts
from kitae.watch.status import Status, status_of
from kitae.watch.table import duration, plain_lines, print_rows, row


def status(path: Path, *attempts: dict[str, object], steps: int = 0) -> Status:
    facts = RunFacts.read(write_run(path, attempts, steps=steps))
    return status_of(facts, {}, lambda attempt: "alive", BEGUN_S + 120)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.4, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (7620, "2h07m"), (93_600, "1d02h")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_a_row_of_a_run_at_work(tmp_path: Path):
    found = status(tmp_path / "a", attempt(price_per_node_hour=30.0), steps=4)
    assert row(found.as_json()) == ("a", "running", "4/10", "2.6000", "500", "1", "12s", "$1.00", "1m", "")


def test_a_row_of_a_run_of_which_little_is_known(tmp_path: Path):
    why = "out of memory; run the same command again to go on\nmore"
    found = status(tmp_path / "a", attempt("failed", why=why))
    assert row(found.as_json()) == ("a", "failed", "-", "-", "-", "1", "-", "-", "1m", "out of memory")


def test_a_row_of_a_run_on_a_head_node_names_it(tmp_path: Path):
    seen = {**status(tmp_path / "a", attempt(), steps=4).as_json(), "head": "pcluster"}
    assert row(seen)[-1] == "pcluster"
    assert row({**seen, "why": "train, job 3"})[-1] == "pcluster: train, job 3"


def test_plain_lines_are_aligned(tmp_path: Path):
    first, second = (row(status(tmp_path / name, attempt(), steps=4).as_json()) for name in ("a", "longer"))
    assert plain_lines([first, second]) == [
        "run     state    step    loss  tokens/s  nodes  left  cost  sign  note",
        "a       running  4/10  2.6000       500      1   12s     -    1m",
        "longer  running  4/10  2.6000       500      1   12s     -    1m",
    ]


def test_a_terminal_gets_a_table(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    for name, value in (("COLUMNS", "120"), ("TERM", "dumb"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("kitae.watch.table.sys.stdout.isatty", lambda: True, raising=False)
    print_rows([status(tmp_path / "a", attempt("failed", why="why [not]")).as_json()])
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["run", "state"]
    assert line.split()[:2] == ["a", "failed"]
    assert line.rstrip().endswith("why [not]")
