"""`kitae top` as a command: what it shows, where, and how it says that it cannot."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import psutil
import pytest
from neuron_stream import report, stand_in
from recorded_runs import attempt, write_run
from top_scenes import write_training

from kitae.cli import top_verbs
from kitae.cli.main import main
from kitae.launch.ssh.remote import Remote, write_remote
from kitae.watch.top import choice
from kitae.watch.top.choice import Elsewhere, Machine, chosen


@pytest.fixture(autouse=True)
def _at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))  # no Slurm, no ssh
    monkeypatch.setenv("COLUMNS", "90")


def remote(name: str, host: str = "head", folder: str = "/shared/kitae") -> Path:
    path = Path("runs") / name
    path.mkdir(parents=True)
    write_remote(path, Remote(host, folder, name, "python3", "/shared/python"))
    return path


def at_work(name: str) -> Path:
    works = attempt(host=os.uname().nodename, pid=os.getpid(), started="9999-01-01T00:00:00+00:00")
    return write_run(Path("runs") / name, [works], steps=4, signed=time.time())


def test_one_picture_of_a_run(capsys: pytest.CaptureFixture[str]):
    """Also without `--once` where nobody can press keys; no colours, no wider than asked."""
    write_training(Path("runs/a"))
    for words in (["top", "a"], ["top", "a", "--once"]):
        assert main(words) == 0
        out = capsys.readouterr().out
        assert "step 300/3,000" in out
        assert "◀ slow, 1.59 x" in out
        assert "\x1b" not in out
        assert max(map(len, out.splitlines())) <= 90


def test_json_has_everything(capsys: pytest.CaptureFixture[str]):
    write_training(Path("runs/a"))
    assert main(["top", "a", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["run"], shown["step"], shown["steps"]) == ("a", 300, 3000)
    assert shown["training"]["tokens_per_s_per_device"] == 8192
    assert shown["training"]["ranks"]["slow"] == {"7": 1.59}
    assert shown["outlook"]["budget_usd"] == 100
    assert len(shown["nodes"]["queue1-st-trn1-1"]["cores"]["utilisation"]) == 32
    assert [one["name"] for one in shown["alarms"]] == ["idle-while-paid", "slow-rank"]


def test_without_a_run_the_one_at_work(capsys: pytest.CaptureFixture[str]):
    write_training(Path("runs/ended"), outcome="finished")
    at_work("works")
    assert main(["top", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == "works"


@pytest.mark.parametrize("words", [[], ["--target", "local"]])
def test_otherwise_this_machine(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["top", "--once", *words]) == 0
    output = capsys.readouterr()
    assert f"{os.uname().nodename}" in output.out
    assert " % " in output.out
    assert ("no run is at work in runs: this machine is shown" in output.err) == (not words)


def test_a_machine_with_neuron_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Its first report is waited for, and what was started to sample it is gone when the verb ends."""
    stand_in(tmp_path, sys.executable, [report()], every_s=1.0)
    assert main(["top", "--target", "local", "--json", "--period", "3"]) == 0
    (node,) = json.loads(capsys.readouterr().out)["nodes"].values()
    assert node["source"] == "neuron-monitor"
    assert len(node["cores"]["index"]) == 32
    assert not psutil.pid_exists(json.loads((tmp_path / "seen.json").read_text())["pid"])


def test_a_run_elsewhere_is_shown_there(monkeypatch: pytest.MonkeyPatch):
    calls = []

    def shown_there(there: Elsewhere, options: list[str], terminal: bool) -> int:
        calls.append((there.host, there.words, options, terminal))
        return 8

    monkeypatch.setattr(choice, "shown_there", shown_there)
    remote("far")
    assert main(["top", "far", "--json"]) == 8
    assert main(["top", "far"]) == 8
    monkeypatch.setattr(top_verbs, "_on_terminal", lambda: True)
    assert main(["top", "far", "--period", "2.5"]) == 8
    assert calls == [
        ("head", ("top", "RUN"), ["--json", "--period", "1"], False),
        ("head", ("top", "RUN"), ["--once", "--period", "1"], False),
        ("head", ("top", "RUN"), ["--period", "2.5"], True),
    ]


def test_a_head_node_is_known_by_the_runs_there():
    remote("old", folder="/old")
    newer = remote("new", folder="/new disk")
    os.utime(newer / "remote.json", (9e9, 9e9))
    remote("other", host="another")
    found = chosen(None, Path("runs"), "head", print)
    assert isinstance(found, Elsewhere)
    assert (found.run.name if found.run else None, found.words) == (
        "new",
        ("top", "--runs", "/new disk/runs"),
    )
    assert chosen(None, Path("runs"), "me@unknown", print) == Elsewhere("me@unknown", None, ("top",))
    assert chosen(None, Path("nowhere"), "local", print) == Machine()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nope"], "nope: there is no such run; kitae ps lists"),
        (
            ["a", "--target", "local"],
            "--target shows a machine, RUN a run, which knows where it is; give one",
        ),
        (
            ["--target", "slurm"],
            "--target slurm: name the head node as ssh knows it, or local for this machine",
        ),
        (["--target", "-oProxyCommand=x"], "target.host: '-oProxyCommand=x' is no host"),
        (["--period", "0"], "Invalid value for '--period'"),
    ],
)
def test_what_is_wrong_is_one_message(words: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    write_training(Path("runs/a"))
    assert main(["top", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_without_textual_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    write_training(Path("runs/a"))
    monkeypatch.setattr(top_verbs, "_on_terminal", lambda: True)
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setattr(top_verbs, "find_spec", lambda name: None)
    assert main(["top", "a"]) == 2
    assert (
        "pip install 'kitae[watch]', or print one picture with: kitae top --once" in capsys.readouterr().err
    )
    assert main(["top", "a", "--once"]) == 0
