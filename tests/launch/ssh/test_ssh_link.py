"""Connections: what is wrong with them, and what follows when they drop."""

import tempfile
from itertools import islice
from pathlib import Path

import pytest

from kitae.errors import ClusterError, RecipeError, StorageError
from kitae.launch.ssh.link import Head, Link, _answer, private_folder, waits


def test_pauses_double_up_to_half_a_minute():
    assert list(islice(waits(), 7)) == [1, 2, 4, 8, 16, 30, 30]


@pytest.fixture
def short(monkeypatch):
    """A folder whose name is short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


def test_host_keys_are_checked_and_the_shared_connection_is_private(node, short):
    words = Link("head").ssh
    assert "StrictHostKeyChecking=yes" in words
    assert "BatchMode=yes" in words
    folder = private_folder()
    assert folder is not None
    assert folder.stat().st_mode & 0o777 == 0o700
    assert f"ControlPath={folder}/%C" in words


def test_a_folder_that_others_may_enter_holds_no_socket(node, short):
    folder = private_folder()
    assert folder == next(short.iterdir())
    folder.chmod(0o755)
    assert private_folder() is None
    assert not any(word.startswith("Control") for word in Link("head").ssh)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ("unknown", "ssh does not know the key of head yet; run `ssh head` once"),
        ("changed", "the key of head is not the one that ssh knows"),
        ("denied", "head does not let you in"),
        ("refuse", "head cannot be reached (ssh: connect to host head port 22: Connection refused)"),
    ],
)
def test_a_first_connection_that_fails_says_why(node, event, words):
    node.plan(event)
    with pytest.raises(ClusterError) as caught:
        Link("head").shell("true")
    assert words in str(caught.value)
    assert node.calls() == 1


def test_a_host_that_nobody_knows(node):
    with pytest.raises(ClusterError, match=r"there is no host elsewhere, neither in the network nor in"):
        Link("elsewhere").shell("true")


@pytest.mark.parametrize("host", ["-oProxyCommand=true", "a b", "", "a;b"])
def test_a_host_is_no_option(host):
    with pytest.raises(RecipeError, match="is no host; write a name of"):
        Link(host)


def test_options_that_cannot_be_read(monkeypatch):
    monkeypatch.setenv("KITAE_SSH_OPTIONS", "-F 'a b")
    with pytest.raises(RecipeError, match=r"KITAE_SSH_OPTIONS: .* mend the quotes"):
        Link("head").shell("true")


def test_a_head_node_that_says_nothing_is_asked_again(node, head, waited, monkeypatch):
    answers = iter([[], [{"exist": ["/"]}]])
    monkeypatch.setattr(Head, "answers", lambda self, verb, content=b"", **request: iter(next(answers)))
    assert head.ask("exists", paths=["/"]) == {"exist": ["/"]}
    assert waited == [1]


def test_without_ssh_one_is_told_what_to_install(node, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="there is no program ssh here; install OpenSSH's client"):
        Link("head").shell("true")


def test_what_drops_is_asked_again(node, head, told, waited):
    node.plan("refuse", "cut 3", "refuse")
    assert head.ask("exists", paths=["/", "/nowhere at all"]) == {"exist": ["/"]}
    assert waited == [1, 2, 4]
    assert told[0].startswith("ssh: the connection dropped (ssh: connect to host head port 22: Connection")
    assert told[0].endswith("once more in 1 s, nothing is lost")


def test_a_key_that_is_refused_in_the_middle_is_not_tried_again(node, head, waited):
    node.plan("denied")
    with pytest.raises(ClusterError, match="does not let you in"):
        head.ask("exists", paths=[])
    assert waited == []


def test_a_network_that_stays_away_is_given_up(node, told):
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    node.plan(*["refuse"] * 40)
    link = Link("head", told.append, sleep, lambda: clock[0])
    head = Head(link, "python3", str(node.folder), {})
    with pytest.raises(ClusterError, match="head cannot be reached"):
        head.ask("exists", paths=[])
    assert 600 < clock[0] < 660


def test_following_goes_on_where_it_was(node, head, told, waited):
    (node.work / "tasks/one").mkdir(parents=True)
    (node.work / "tasks/one/output").write_text("first\nsecond\n")
    (node.work / "tasks/one/result").write_text("0")
    position = {"position": 0}
    found = []
    node.plan("", "cut 60", "")
    for answer in head.follow(lambda: position, "follow", task="one"):
        found.append(answer)
        position["position"] = answer.get("position", position["position"])
    assert "".join(one.get("text", "") for one in found) == "first\nsecond\n"
    assert found[-1] == {"code": 0}


def test_what_a_login_shell_prints_is_no_answer():
    assert _answer(b"Welcome!\n") is None
    assert _answer(b'kitae:{"exist": []}\n') == {"exist": []}
    assert _answer(b'kitae:{"exist"') is None
    with pytest.raises(StorageError, match="no room"):
        _answer(b'kitae:{"error": "no room", "kind": "storage"}\n')


def test_a_program_there_that_fails_is_told(node, head):
    with pytest.raises(ClusterError, match="failed: "):
        list(head.answers("run", words=["sh", "-c", "echo bad >&2; exit 3"], variables={}))
    assert head.pass_through(["sh", "-c", "exit 3"], {}) == 3
