"""`kitae report` as it is typed, and the report that a run ends with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from reported_runs import write_reported

from kitae.cli.main import main
from kitae.errors import KitaeError, RecipeError, StoppedError, StorageError, TrainingError
from kitae.stages.run_folder import RunFolder
from kitae.watch.report import write
from kitae.watch.report.failed import report_on_failure
from kitae.watch.report.html import MARK
from kitae.watch.report.write import MOST_RUNS, report_at_end


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        write_reported(tmp_path / "runs" / name)
    return tmp_path


@pytest.fixture
def without_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("plotly", "plotly.offline"):
        monkeypatch.setitem(sys.modules, name, None)


def test_a_run_by_its_name(here: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["report", "a"]) == 0
    assert capsys.readouterr().out == f"{here / 'runs/a/report.html'}\n"
    assert MARK in (here / "runs/a/report.html").read_text()
    assert main(["report", "a"]) == 0  # its own page is written anew


def test_several_runs_lie_where_one_is(here: Path):
    assert main(["report", "a", "b"]) == 0
    assert "a · b" in (here / "report.html").read_text()
    assert main(["report", "a", "runs/a", "--to", "one.html"]) == 0  # the same run twice is one
    assert "<h1>a</h1>" in (here / "one.html").read_text()


def test_markdown_needs_no_extra(here: Path, without_plotly: None, capsys: pytest.CaptureFixture[str]):
    assert main(["report", "a", "--md"]) == 0
    assert (here / "runs/a/report.md").read_text().startswith("# a\n")
    assert main(["report", "a", "--md"]) == 0
    assert main(["report", "a"]) == 2
    assert "install it with pip install 'kitae[watch]', or take --md" in capsys.readouterr().err


def test_what_is_no_report_is_not_overwritten(here: Path, capsys: pytest.CaptureFixture[str]):
    (here / "notes.html").write_text("<p>mine</p>")
    assert main(["report", "a", "--to", "notes.html"]) == 2
    assert "notes.html is there already, and is no report of kitae's" in capsys.readouterr().err
    assert (here / "notes.html").read_text() == "<p>mine</p>"
    assert main(["report", "a", "--to", "runs"]) == 2
    assert "runs is a folder; name a file" in capsys.readouterr().err
    assert main(["report", "a", "--to", "/dev/zero"]) == 2  # without reading it to its end
    assert "/dev/zero is there already" in capsys.readouterr().err


def test_wrong_runs_are_told(here: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["report", "nope"]) == 2
    assert "nope: there is no such run" in capsys.readouterr().err
    assert main(["report"]) == 2
    names = []
    for number in range(MOST_RUNS + 1):
        write_reported(here / f"runs/r{number}")
        names.append(f"r{number}")
    capsys.readouterr()
    assert main(["report", *names]) == 2
    assert f"{MOST_RUNS + 1} runs are too many" in capsys.readouterr().err


def test_it_is_opened_where_there_is_a_browser(here: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    asked: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: bool(asked.append(address)))
    assert main(["report", "a", "--open"]) == 0
    assert asked == [(here / "runs/a/report.html").as_uri()]
    assert "there is no browser here" in capsys.readouterr().err


def test_a_run_ends_with_its_report(here: Path):
    said: list[str] = []
    report_at_end(here / "runs/a", said.append)
    assert said == [f"report         {here / 'runs/a/report.html'}"]
    assert MARK in (here / "runs/a/report.html").read_text()


def test_without_the_extra_it_ends_with_markdown(here: Path, without_plotly: None):
    said: list[str] = []
    report_at_end(here / "runs/a", said.append)
    run = here / "runs/a"
    way = f"(with plots: pip install 'kitae[watch]', then kitae report {run})"
    assert said == [f"report         {run / 'report.md'} {way}"]
    assert (run / "report.md").is_file()


@pytest.mark.parametrize("error", [StorageError("the disk is full"), RuntimeError("a bug"), MemoryError()])
def test_a_report_that_fails_is_a_warning(here: Path, monkeypatch: pytest.MonkeyPatch, error: Exception):
    def failing(*given: object) -> None:
        raise error

    monkeypatch.setattr(write, "report_of", failing)
    said: list[str] = []
    report_at_end(here / "runs/a", said.append)
    assert len(said) == 1
    assert said[0].startswith(
        f"warning: the report is not written ({type(error).__name__}: {error}); kitae report"
    )


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (TrainingError("step 7: the loss is nan"), True),
        (RuntimeError("a bug"), True),
        (StoppedError("stopped by SIGTERM"), False),
        (RecipeError("another training"), False),
    ],
)
def test_a_run_that_fails_gets_its_report(tmp_path: Path, error: Exception, reported: bool):
    run, said = RunFolder(tmp_path / "run"), list[str]()
    with pytest.raises(type(error)), report_on_failure(run, said.append), run.attempt():
        raise error
    assert said == [f"report         {run.path / 'report.html'}"] * reported
    assert (run.path / "report.html").exists() == reported
    assert not reported or str(error) in (run.path / "report.html").read_text()


def test_a_reader_who_is_gone_does_not_hide_the_error(tmp_path: Path):
    def told(line: str) -> None:
        raise BrokenPipeError

    run = RunFolder(tmp_path / "run")
    with pytest.raises(TrainingError), report_on_failure(run, told), run.attempt():
        raise TrainingError("step 7: the loss is nan")


def test_a_run_that_another_process_has_keeps_its_report(tmp_path: Path):
    run, said = RunFolder(tmp_path / "run"), list[str]()
    with run.held(), pytest.raises(KitaeError), report_on_failure(run, said.append), run.attempt():
        raise AssertionError
    assert said == []


def test_room_that_is_missing_is_told(here: Path, mount_small, capsys: pytest.CaptureFixture[str]):
    small = mount_small(here / "small", 1024)
    assert main(["report", "a", "--to", str(small / "r.html")]) == 7
    assert "cannot save to" in capsys.readouterr().err
    assert list(small.iterdir()) == []
