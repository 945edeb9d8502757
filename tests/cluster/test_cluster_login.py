"""`kitae cluster ssh`: which machine, which key, through what, and whether this address may come in."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_case import GOOD, write_cluster

from kitae.cli.main import main
from kitae.cluster import login
from kitae.cluster.aws import Account
from kitae.cluster.login import Door, Visit, outside, ssh_words

DOOR = Door("llama", "i-0123456789abcdef0", "203.0.113.9", "my-key", ())
MINE = ["llama", "--region", "us-west-2"]


@pytest.fixture
def made(engine, tmp_path, monkeypatch, capsys) -> Path:
    monkeypatch.setattr(login, "own_address", lambda: None)
    Account("us-west-2").client("ec2").create_key_pair(KeyName="my-key")
    path = write_cluster(tmp_path)
    assert main(["cluster", "up", str(path), "--yes"]) == 0
    capsys.readouterr()
    return path


@pytest.fixture
def went(monkeypatch) -> list[list[str]]:
    """Command lines of ssh that would have run."""
    found: list[list[str]] = []
    monkeypatch.setattr(login, "go", lambda visit: found.append(ssh_words(visit)) or 7)
    return found


def head(account: Account) -> dict[str, str]:
    [group] = account.client("ec2").describe_instances()["Reservations"]
    found: dict[str, str] = group["Instances"][0]
    return found


def test_the_head_node_is_found_by_its_tags_and_the_exit_code_is_that_of_the_command(made, went, tmp_path):
    key = tmp_path / "key.pem"
    key.write_text("")
    assert main(["cluster", "ssh", *MINE, "--key", str(key), "--", "sinfo", "-N"]) == 7
    one = head(Account("us-west-2"))
    [words] = went
    assert words[0] == "ssh"
    assert words[-3:] == [f"ubuntu@{one.get('PublicIpAddress') or one['PrivateIpAddress']}", "sinfo", "-N"]
    assert words[words.index("-i") + 1] == str(key)
    assert f"HostKeyAlias=kitae-{one['InstanceId']}" in words


def test_a_node_is_reached_through_the_head_node():
    words = ssh_words(Visit(DOOR, "ubuntu", Path("/k"), "train-dy-trn1-32xlarge-1", ("hostname",)))
    [through] = [word for word in words if word.startswith("ProxyCommand=")]
    assert through.startswith("ProxyCommand=ssh -i /k ")
    assert through.endswith("-W %h:%p ubuntu@203.0.113.9")
    assert words[-2:] == ["ubuntu@train-dy-trn1-32xlarge-1", "hostname"]


def test_options_of_the_environment_are_given_to_both(monkeypatch):
    monkeypatch.setenv("KITAE_SSH_OPTIONS", "-p 2222 -F 'a b'")
    words = ssh_words(Visit(DOOR, "ubuntu", None, "10.60.1.2"))
    assert words[1:5] == ["-p", "2222", "-F", "a b"]
    assert any("ProxyCommand=ssh -p 2222 -F 'a b'" in word for word in words)


@pytest.mark.parametrize(
    ("address", "allowed", "out"),
    [
        ("203.0.113.7", ["203.0.113.7/32"], False),
        ("203.0.113.8", ["203.0.113.7/32"], True),
        ("203.0.113.8", ["198.51.100.0/24", "203.0.113.0/24"], False),
        ("203.0.113.8", [], True),
        ("2001:db8::1", ["203.0.113.0/24"], True),
    ],
)
def test_addresses_and_ranges(address, allowed, out):
    assert outside(address, allowed) is out


def given_groups(monkeypatch, account: Account) -> None:
    """The head node is in the group that lets ssh in, which moto's machines of the stand-in are not."""
    from kitae.cluster.stacks import find_stack

    group = find_stack(account, "kitae-llama-network").outputs["SshGroup"]
    one = head(account)
    account.client("ec2").modify_instance_attribute(InstanceId=one["InstanceId"], Groups=[group])


@pytest.mark.parametrize(("address", "warned"), [("203.0.113.7", False), ("203.0.113.8", True)])
def test_an_address_that_may_not_come_in_is_told(address, warned, made, went, monkeypatch, capsys):
    given_groups(monkeypatch, Account("us-west-2"))
    monkeypatch.setattr(login, "own_address", lambda: address)
    main(["cluster", "ssh", str(made)])
    said = capsys.readouterr().err
    assert (f"this machine's address is {address}, and 203.0.113.7/32 may come in by ssh" in said) is warned
    assert (f"add {address}/32 to head.allow_ssh_from, then kitae cluster update" in said) is warned


def test_a_connection_that_does_not_come_about_is_told(made, monkeypatch, capsys):
    monkeypatch.setattr(login, "go", lambda visit: 255)
    assert main(["cluster", "ssh", str(made)]) == 255
    assert "ssh did not come through to llama" in capsys.readouterr().err


def test_a_node_by_its_id(made, went, capsys):
    assert main(["cluster", "ssh", *MINE, "--node", "i-0000000000000000f"]) == 8
    assert "no machine i-0000000000000000f is in llama" in capsys.readouterr().err


def test_a_key_that_is_not_there(made, went, capsys):
    assert main(["cluster", "ssh", *MINE, "--key", "nowhere.pem"]) == 8
    assert "--key: nowhere.pem: there is no such file" in capsys.readouterr().err


def test_without_a_key_pair_only_the_session_manager_leads_in():
    from kitae.errors import ClusterError

    with pytest.raises(ClusterError, match="aws ssm start-session --target i-0123456789abcdef0"):
        login.key_of(Door("llama", "i-0123456789abcdef0", "203.0.113.9", "", ()), None)


def test_the_key_of_the_pairs_name_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert login.key_of(DOOR, None) is None
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/my-key.pem").write_text("")
    assert login.key_of(DOOR, None) == tmp_path / ".ssh/my-key.pem"


def test_users_are_those_of_the_images(tmp_path):
    from cluster_case import loaded

    assert login.user_of(None) == "ubuntu"
    assert login.user_of(loaded(tmp_path, "image.os=rocky9").file) == "rocky"
    assert login.user_of(loaded(tmp_path, "image.os=alinux2023").file) == "ec2-user"


def test_a_head_node_that_is_stopped_is_told(made, capsys):
    account = Account("us-west-2")
    account.client("ec2").stop_instances(InstanceIds=[head(account)["InstanceId"]])
    assert main(["cluster", "ssh", str(made)]) == 8
    assert "the head node of llama is stopped" in capsys.readouterr().err


def test_an_ssh_that_is_not_there(monkeypatch):
    from kitae.errors import ClusterError

    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClusterError, match="install openssh-client"):
        login.go(Visit(DOOR, "ubuntu"))


def test_this_machines_address_is_unknown_where_nobody_can_be_asked(monkeypatch):
    monkeypatch.setattr(login, "_ASK_ADDRESS", "http://127.0.0.1:9/")
    assert login.own_address() is None
    monkeypatch.setattr(login, "_ASK_ADDRESS", "data:,203.0.113.7%0A")
    assert login.own_address() == "203.0.113.7"
    assert GOOD


def test_logs_on_a_node_are_read_by_their_places():
    from kitae.errors import ClusterError

    assert login.tail_words(["bootstrap", "slurm"], 50, head=True, follow=False) == (
        "sudo",
        "tail",
        "-n",
        "50",
        "/var/log/kitae-bootstrap.log",
        "/var/log/slurmctld.log",
    )
    words = login.tail_words([], 5, head=False, follow=True)
    assert "-F" in words
    assert "/var/log/slurmd.log" in words
    with pytest.raises(ClusterError, match="'chef-client' is not read on a node; those are: bootstrap"):
        login.tail_words(["chef-client"], 5, head=True, follow=False)


def test_logs_by_ssh_tell_the_first_error_in_plain_words(made, monkeypatch, capsys):
    """Row 41."""
    asked: list[Visit] = []
    text = "An error occurred (InsufficientInstanceCapacity) when calling the RunInstances operation"
    monkeypatch.setattr(login, "read", lambda visit: asked.append(visit) or (0, ["hello", text]))
    words = ["cluster", "logs", *MINE, "--by-ssh", "--log", "fleet"]
    assert main(words) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0] == "hello"
    assert "the first error: AWS has not enough of these machines" in said.err
    assert asked[0].command[-1] == "/var/log/parallelcluster/clustermgtd"
    monkeypatch.setattr(login, "read", lambda visit: (255, []))
    assert main(words) == 8
    assert "ssh did not come through to llama" in capsys.readouterr().err
