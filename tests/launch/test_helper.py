"""A process beside the ranks: heard, ended with its starter however that ends, and never in the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import gone, wait_for

from kitae.launch import helper
from kitae.launch.helper import Helper, helped

HERE = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(HERE)


def works(folder: Path, **settings: object) -> Helper:
    return Helper("helper_works", {"folder": str(folder), **settings})


def test_it_gets_its_settings_is_heard_and_ends_with_the_block(tmp_path: Path):
    heard: list[str] = []
    with helped(works(tmp_path, words=["one", "two"]).with_settings(more=3), heard.append):
        wait_for((tmp_path / "here").is_file)
    told = json.loads((tmp_path / "here").read_text())
    assert (told["more"], heard, gone(told["pid"])) == (3, ["one", "two"], True)
    assert (tmp_path / "ended").is_file(), "by itself, as its input ended"


def test_none_is_none():
    with helped(None):
        assert True


def test_an_error_of_what_is_helped_is_passed_on(tmp_path: Path):
    with pytest.raises(KeyError), helped(works(tmp_path)):
        raise KeyError("mine")
    assert (tmp_path / "ended").is_file()


def test_one_that_cannot_be_started_harms_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with helped(works(tmp_path)):
        assert True


def test_one_that_dies_harms_nobody(tmp_path: Path):
    with helped(works(tmp_path), print):
        wait_for((tmp_path / "here").is_file)
        pid = json.loads((tmp_path / "here").read_text())["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: gone(pid))


def test_one_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(helper, "ENDING_S", 0.1)
    with helped(works(tmp_path, stays=True)):
        wait_for((tmp_path / "here").is_file)
    assert gone(json.loads((tmp_path / "here").read_text())["pid"])


def test_whoever_hears_badly_is_told_on(tmp_path: Path):
    heard: list[str] = []

    def hear(word: str) -> None:
        heard.append(word)
        raise ValueError(word)

    with helped(works(tmp_path, words=["one", "two"]), hear):
        wait_for(lambda: len(heard) == 2)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_a_starter_that_is_killed(tmp_path: Path, number: signal.Signals):
    code = (
        f"import sys, time; sys.path[:] = {[HERE, *sys.path]}; from kitae.launch.helper import *\n"
        f"with helped(Helper('helper_works', {{'folder': {str(tmp_path)!r}}}), print): time.sleep(60)"
    )
    starter = subprocess.Popen([sys.executable, "-c", code])
    wait_for((tmp_path / "here").is_file)
    starter.send_signal(number)
    starter.wait()
    wait_for((tmp_path / "ended").is_file)
    wait_for(lambda: gone(json.loads((tmp_path / "here").read_text())["pid"]))
