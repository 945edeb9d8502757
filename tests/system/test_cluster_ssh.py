"""`kitae cluster ssh` with a real sshd: to the head node, and through it to a node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cluster_case import write_cluster
from moto_server_fixtures import engine, moto, moto_process
from sshd import Sshd, sshd

from kitae.cli.main import main
from kitae.cluster.aws import Account

__all__ = ["engine", "moto", "moto_process"]  # fixtures


@pytest.fixture
def server(tmp_path) -> Sshd:
    with sshd(tmp_path / "sshd", {}) as up:
        yield up


@pytest.fixture
def words(engine, server, tmp_path, monkeypatch) -> list[str]:
    """All addresses lead to this machine's sshd, on its port; the cluster is made in moto."""
    account = Account("us-west-2")
    account.client("ec2").create_key_pair(KeyName="my-key")
    path = write_cluster(tmp_path)
    assert main(["cluster", "up", str(path), "--yes"]) == 0
    config = tmp_path / "ssh_config"
    text = server.config.read_text().replace("Host head", "Host *")
    config.write_text(text.replace(f"{server.folder}/known", f"{tmp_path}/known"))
    monkeypatch.setenv("KITAE_SSH_OPTIONS", f"-F {config}")
    monkeypatch.setattr("kitae.cluster.login.own_address", lambda: None)
    return ["cluster", "ssh", str(path), "--user", "root", "--key", str(server.folder / "user")]


def test_a_command_runs_there_and_its_exit_code_comes_back(words, capfd):
    assert main([*words, "--", "echo one; exit 41"]) == 41
    assert capfd.readouterr().out.endswith("one\n")


def test_a_node_is_reached_through_the_head_node(words, server, capfd):
    assert main([*words, "--node", "train-dy-trn1-32xlarge-1", "--", "echo", "$SSH_CONNECTION"]) == 0
    assert "127.0.0.1" in capfd.readouterr().out
    log = (server.folder / "log").read_text()
    assert log.count("Accepted publickey for root") == 2


def test_a_server_that_is_not_there_is_told(words, monkeypatch, capfd):
    monkeypatch.setenv("KITAE_SSH_OPTIONS", "-F none -p 9 -o ConnectTimeout=1")
    assert main([*words, "--", "true"]) == 255
    assert "ssh did not come through to llama" in capfd.readouterr().err


def test_input_goes_through(words, tmp_path):
    program = (
        f"import sys; sys.path.insert(0, {str(Path.cwd() / 'src')!r}); from kitae.cluster import login; "
    )
    program += "login.own_address = lambda: None; "
    program += "from kitae.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, *words, "--", "cat"], input="hello\n", text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "hello\n"


def test_what_a_command_printed_can_be_read(words, server, monkeypatch):
    from kitae.cluster.login import Visit, door_of, read

    door = door_of(Account("us-west-2"), "llama")
    assert read(Visit(door, "root", server.folder / "user", "", ("echo one; echo two; exit 3",))) == (
        3,
        ["one", "two"],
    )
