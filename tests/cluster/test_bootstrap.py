"""Bootstrap scripts: run here for real under another root, with stand-ins for what they call."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kitae.cluster.bootstrap_scripts import NODES, script_of, scripts_folder

# Each notes how it was called. `curl` answers as the instance's own metadata service does.
CALLED = ("apt-get", "apt-mark", "sysctl", "aws", "systemctl")
NOTE = '#!/bin/sh\necho "$(basename "$0") $*" >>"$KITAE_ROOT/calls"\n'
STAND_INS = {
    **dict.fromkeys(CALLED, NOTE),
    "hostname": "#!/bin/sh\necho q-dy-trn1-1\n",
    "curl": NOTE + 'case "$*" in *local-ipv4) echo 10.60.128.7;; *token) echo secret;; esac\n',
    "python3": NOTE + 'if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi\n',
}
SDK = (
    "sdk=2.28.1",
    "apt=aws-neuronx-dkms=2.26.10.0*",
    "apt=aws-neuronx-tools=2.28.23.0*",
    "pip=torch-neuronx==2.9.0",
)


class Node:
    """A machine whose root is a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        stand_ins = root / "stand-ins"
        stand_ins.mkdir(parents=True)
        for name, text in STAND_INS.items():
            (stand_ins / name).write_text(text)
            (stand_ins / name).chmod(0o755)
        (root / "etc").mkdir()
        (root / "etc/os-release").write_text("VERSION_CODENAME=jammy\n")
        (root / "etc/hosts").write_text(
            "127.0.0.1 localhost\n10.0.0.9 q-dy-trn1-1 q-dy-trn1-1.local\n10.0.0.8 other\n"
        )

    def run(self, node: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.root / 'stand-ins'}:{os.environ['PATH']}",
            "KITAE_ROOT": str(self.root),
            "KITAE_PAUSE_S": "0",
            **variables,
        }
        (self.root / "calls").write_text("")
        words = ("bash", "-s", "--", *words)
        return subprocess.run(words, input=script_of(node), env=environment, capture_output=True, text=True)

    @property
    def calls(self) -> list[str]:
        return (self.root / "calls").read_text().splitlines()

    def text(self, path: str) -> str:
        return (self.root / path).read_text()


@pytest.fixture
def node(tmp_path) -> Node:
    return Node(tmp_path / "root")


def test_a_compute_node_gets_pinned_packages_that_stay(node):
    done = node.run("compute", *SDK)
    assert done.returncode == 0, done.stdout
    install = next(call for call in node.calls if "install" in call)
    assert "aws-neuronx-dkms=2.26.10.0* aws-neuronx-tools=2.28.23.0*" in install
    assert "apt-mark -q hold aws-neuronx-dkms" in node.calls
    assert "jammy main" in node.text("etc/apt/sources.list.d/neuron.list")
    assert "signed-by=" in node.text("etc/apt/sources.list.d/neuron.list")
    assert not [call for call in node.calls if call.startswith("python3")]


def test_its_name_is_that_of_its_first_interface(node):
    """The hosts file of a node with 8 interfaces, or of one that had an older node's address."""
    node.run("compute")
    assert node.text("etc/hosts") == "127.0.0.1 localhost\n10.0.0.8 other\n10.60.128.7 q-dy-trn1-1\n"


def test_limits_ports_and_a_cache_on_its_own_disk(node):
    (node.root / "local_storage").mkdir()
    node.run("compute")
    assert "* hard nofile 65535" in node.text("etc/security/limits.d/99-kitae.conf")
    assert "44000,48620" in node.text("etc/sysctl.d/99-kitae.conf")
    assert ":-/local_storage/kitae/compiled}" in node.text("etc/profile.d/kitae-cache.sh")
    assert (node.root / "local_storage/kitae/compiled").stat().st_mode & 0o7777 == 0o1777


@pytest.mark.parametrize("kind", NODES)
def test_a_second_run_changes_and_installs_nothing(kind, node):
    assert node.run(kind, *SDK, "wheel=s3://b/kitae-1-py3-none-any.whl").returncode == 0
    written = {path: path.read_bytes() for path in (node.root / "etc").rglob("*") if path.is_file()}
    done = node.run(kind, *SDK, "wheel=s3://b/kitae-1-py3-none-any.whl")
    assert done.returncode == 0
    assert "there already" in done.stdout
    assert not [call for call in node.calls if "install" in call or "venv" in call or call.startswith("aws")]
    assert written == {path: path.read_bytes() for path in (node.root / "etc").rglob("*") if path.is_file()}


def test_another_pin_is_installed(node):
    node.run("compute", *SDK)
    node.run("compute", "sdk=2.29.1", "apt=aws-neuronx-dkms=2.27.4.0*")
    assert any("aws-neuronx-dkms=2.27.4.0*" in call for call in node.calls)


def test_the_head_node_makes_an_environment_for_each_sdk_with_kitae_in_it(node):
    words = ("wheel=s3://b/kitae-1-py3-none-any.whl", *SDK, "sdk=2.33.0", "pip=torch-neuronx==2.14.3.0")
    done = node.run("head", *words)
    assert done.returncode == 0, done.stdout
    pip = [call.partition("amazonaws.com ")[2] for call in node.calls if "--extra-index-url" in call]
    wheel = node.root / "var/lib/kitae/kitae-1-py3-none-any.whl"
    assert pip == [f"torch-neuronx==2.9.0 {wheel}", f"torch-neuronx==2.14.3.0 {wheel}"]
    made = [call for call in node.calls if "venv" in call and "apt-get" not in call]
    assert [call.rsplit("/", 1)[1] for call in made] == ["env-2.28.1", "env-2.33.0"]
    assert any(f"{wheel}" in call for call in node.calls if call.startswith("aws s3 cp"))


def test_without_an_sdk_kitae_gets_a_plain_environment(node):
    node.run("head", "wheel=s3://b/kitae-1-py3-none-any.whl")
    assert any(call.endswith("env-plain") for call in node.calls)
    node.run("head")
    assert not any("venv " in call and "apt" not in call for call in node.calls)


GUARD = ("guard=s3://b/f/guard.py", "watch=s3://b/guard")


def test_the_head_node_gets_a_guard_before_anything_that_takes_long(node):
    assert node.run("head", *GUARD, "wheel=s3://b/kitae-1-py3-none-any.whl").returncode == 0
    service = node.text("etc/systemd/system/kitae-guard.service")
    assert "ExecStart=/usr/bin/python3 /var/lib/kitae/guard.py s3://b/guard\n" in service
    assert "OnUnitInactiveSec=60" in node.text("etc/systemd/system/kitae-guard.timer")
    calls = node.calls
    assert any(
        call.endswith("s3://b/f/guard.py " + str(node.root / "var/lib/kitae/guard.py")) for call in calls
    )
    enabled = calls.index("systemctl enable --now kitae-guard.timer")
    assert enabled < next(number for number, call in enumerate(calls) if "venv" in call)
    node.run("head", *GUARD[:1], "watch=s3://c/guard")
    assert "guard.py s3://c/guard\n" in node.text("etc/systemd/system/kitae-guard.service")
    assert not [call for call in node.calls if call.startswith("aws")]


def test_a_node_of_a_queue_gets_none(node):
    node.run("compute", *SDK)
    assert not (node.root / "etc/systemd").exists()


def test_what_fails_is_tried_again_and_then_told(node):
    (node.root / "stand-ins/apt-get").write_text(NOTE + "exit 100\n")
    done = node.run("compute", *SDK, KITAE_ATTEMPTS="2")
    assert done.returncode != 0
    assert node.calls.count("apt-get -qq update") == 2
    assert "FAILED in line" in done.stdout
    assert "attempt 2 of 2 failed: apt-get -qq update" in node.text("var/log/kitae-bootstrap.log")
    (node.root / "stand-ins/apt-get").write_text(NOTE)
    assert node.run("compute", *SDK).returncode == 0
    assert any("install" in call for call in node.calls)


def test_an_argument_that_nobody_knows_is_refused(node):
    done = node.run("compute", "sdx=1")
    assert done.returncode == 2
    assert "unknown argument: sdx=1" in done.stdout


@pytest.mark.parametrize("kind", NODES)
def test_shellcheck_has_nothing_to_say(kind, tmp_path):
    found = shutil.which("shellcheck") or shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip("shellcheck is not installed")
    (tmp_path / "script.sh").write_text(script_of(kind))
    done = subprocess.run([found, tmp_path / "script.sh"], capture_output=True, text=True)
    assert done.stdout == ""


def test_the_folder_is_named_after_what_the_scripts_say(monkeypatch):
    before = scripts_folder()
    assert before == scripts_folder()
    monkeypatch.setattr("kitae.cluster.bootstrap_scripts.script_of", lambda node: f"another {node}")
    assert scripts_folder() != before
