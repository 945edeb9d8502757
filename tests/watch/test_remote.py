"""Runs behind a head node, which is asked in place of this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from recorded_runs import attempt, write_run

from kitae.cli.main import main
from kitae.errors import ClusterError
from kitae.launch.ssh import following
from kitae.launch.ssh.remote import Remote, write_remote
from kitae.watch.facts import RunFacts
from kitae.watch.status import status_of


def remote(path: Path, name: str, host: str = "head") -> Path:
    """The folder here of a run that is called `name` there."""
    path.mkdir(parents=True)
    write_remote(path, Remote(host, "/shared/kitae", name, "python3", "/shared/python"))
    return path


@pytest.fixture(autouse=True)
def _at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "there"),
    [
        (["logs", "a", "-f"], ["logs", "RUN", "--follow", "--rank", "0", "--lines", "40"]),
        (
            ["logs", "a", "--first-failure"],
            ["logs", "RUN", "--first-failure", "--rank", "0", "--lines", "40"],
        ),
        (["cancel", "runs/a", "--now", "--no-wait"], ["cancel", "RUN", "--now", "--no-wait"]),
        (
            ["resume", "a", "--nodes", "2-4", "--set", "x=1"],
            ["resume", "RUN", "--set", "x=1", "--nodes", "2-4"],
        ),
    ],
)
def test_verbs_are_done_there(words: list[str], there: list[str], monkeypatch: pytest.MonkeyPatch):
    run = remote(Path("runs/a").absolute(), "a")
    calls = []

    def run_there(run: Path, words: Sequence[str]) -> int:
        calls.append((run, list(words)))
        return 75

    monkeypatch.setattr(following, "run_there", run_there)
    assert main(words) == 75
    assert calls == [(run, there)]


def seen(path: Path) -> dict[str, object]:
    facts = RunFacts.read(write_run(path, [attempt(job=3, nodes=["n1"])], steps=4))
    return status_of(facts, {}, lambda attempt: "alive", 0.0).as_json()


def test_ps_asks_each_head_node_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    for name, there, host in (("a", "a", "head"), ("b", "other", "head"), ("c", "c", "gone")):
        remote(Path("runs") / name, there, host)
    calls = []

    def output_there(run: Path, words: Sequence[str], report: Callable[[str], None]) -> str:
        calls.append((run.name, words[-1]))
        if run.name == "c":
            raise ClusterError("there is no host gone")
        return json.dumps([seen(tmp_path / "there" / name) for name in ("a", "other", "third")])

    monkeypatch.setattr(following, "output_there", output_there)
    assert main(["ps", "--json"]) == 0
    output = capsys.readouterr()
    shown = json.loads(output.out)
    assert [(one["run"], one["head"], one["step"]) for one in shown] == [("a", "head", 4), ("b", "head", 4)]
    assert [place for _, place in calls] == ["/shared/kitae/runs"] * 2
    assert output.err == "c and what else is there cannot be seen: there is no host gone\n"
