"""What a head node must have."""

import sys

import pytest

from kitae.errors import ClusterError, StorageError
from kitae.launch.ssh import probe
from kitae.launch.ssh.link import Link
from kitae.launch.ssh.probe import look


def test_folder_and_variables_of_a_head_node(node):
    node.profile("echo Welcome!", "export SLURM_CONF=/etc/of/cluster")
    head, rsync = look(Link("head"), "~/work of me", sys.executable)
    assert head.folder == str(node.folder / "home/work of me")
    assert head.python == sys.executable
    assert head.environment["SLURM_CONF"] == "/etc/of/cluster"
    assert "PATH" in head.environment
    assert isinstance(rsync, bool)
    assert not list((node.folder / "home/work of me").glob(".write*"))


def test_the_python_of_this_version_is_taken_else_the_newest(node, monkeypatch):
    monkeypatch.setattr(probe, "_NAMES", ("python3", "python3.10", "python3.14"))
    own = sys.version_info[1]
    for name, minor in (("python3", own - 1), ("python3.10", own), ("python3.14", 99)):
        node.program(name, f"#!/bin/sh\nprintf '3 {minor} /opt/a b/3.{minor}'\n")
    head, _ = look(Link("head"), str(node.work), None)
    assert head.python == f"/opt/a b/3.{own}"
    node.program("python3.10", "#!/bin/sh\nexit 1\n")
    head, _ = look(Link("head"), str(node.work), None)
    assert head.python == "/opt/a b/3.99"


def test_no_python_that_is_new_enough(node):
    node.program("old", "#!/bin/sh\nprintf '3 6 /usr/bin/python3.6'\n")
    with pytest.raises(ClusterError) as caught:
        look(Link("head"), str(node.work), "old")
    assert str(caught.value) == (
        "target.python: no Python of 3.10 or newer on head (old: found 3.6); install one there, or name its "
        "path with target.python"
    )


def test_a_folder_that_cannot_be_written_to(node):
    (node.folder / "file").touch()
    with pytest.raises(
        StorageError, match=r"target.folder: head cannot write there: .*; name a folder that you"
    ):
        look(Link("head"), str(node.folder / "file/below"), None)


def test_a_full_disk_is_told(node, mount_small):
    small = mount_small(node.folder / "small", 64)
    (small / "all").write_bytes(bytes(64 << 10))
    with pytest.raises(StorageError, match="No space left on device; free some space there"):
        look(Link("head"), str(small), None)


def test_no_slurm(node):
    (node.folder / "bin/sbatch").unlink()
    node.profile(f"PATH={node.folder}/only")
    (node.folder / "only").mkdir()
    for name in ("mkdir", "rm"):
        (node.folder / "only" / name).symlink_to(f"/bin/{name}")
    (node.folder / "only/python3").symlink_to(sys.executable)
    with pytest.raises(
        ClusterError, match="there is no Slurm on head: a login shell there finds no program sbatch"
    ):
        look(Link("head"), str(node.work), None)


def test_a_login_shell_that_ends_is_told(node):
    node.profile("exit 0")
    with pytest.raises(ClusterError, match="the shell of head ended before it had answered"):
        look(Link("head"), str(node.work), None)
