"""A verb on a head node with this terminal, over ssh."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from head_node import HeadNode, head_node

from kitae.errors import ClusterError
from kitae.launch.ssh.remote import Remote, write_remote
from kitae.launch.ssh.terminal import on_host, with_run

FAKE = '#!/bin/sh\necho "$0" "$@"\nenv | grep -E \'^(KITAE_CACHE|COLORTERM|PYTHONPATH)=\'\npwd\nexit 9\n'


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HeadNode:
    made = head_node(tmp_path / "head", monkeypatch)
    made.work.mkdir(parents=True)
    return made


def remote(head: HeadNode, tmp_path: Path) -> Path:
    run = tmp_path / "runs/a run"
    run.mkdir(parents=True)
    head.program("python-of-run", FAKE)
    python = str(head.folder / "bin/python-of-run")
    write_remote(run, Remote("head", str(head.work), "a run", sys.executable, python, "/a path"))
    return run


def test_the_run_there_and_what_a_screen_goes_by(head: HeadNode, tmp_path: Path, monkeypatch, capfd):
    monkeypatch.setenv("COLORTERM", "true color")
    assert with_run(remote(head, tmp_path), ["top", "RUN", "--period", "1"], terminal=True) == 9
    program, *rest = capfd.readouterr().out.splitlines()
    assert program == f"{head.folder}/bin/python-of-run -m kitae top {head.work}/runs/a run --period 1"
    assert set(rest) == {
        f"KITAE_CACHE={head.work}/cache",
        "COLORTERM=true color",
        "PYTHONPATH=/a path",
        str(head.work),
    }


def test_a_host_with_kitae_on_its_path(head: HeadNode, capfd):
    head.program("kitae", FAKE)
    assert on_host("head", ["top", "--once"], terminal=False) == 9
    assert capfd.readouterr().out.splitlines()[0].endswith("kitae top --once")


def test_a_host_without_kitae(head: HeadNode, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STANDIN_PATH", "/usr/bin:/bin")
    with pytest.raises(ClusterError, match=r"there is no kitae on head: submit a run there"):
        on_host("head", ["top"], terminal=False)


def test_a_host_that_is_not_there(head: HeadNode):
    with pytest.raises(ClusterError, match=r"there is no host nowhere, neither in the network"):
        on_host("nowhere", ["top"], terminal=False)
    head.plan("refuse")
    with pytest.raises(ClusterError, match=r"head cannot be reached \(ssh: connect to host head port 22"):
        on_host("head", ["top"], terminal=False)
