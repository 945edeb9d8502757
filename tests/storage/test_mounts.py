"""Which file system a path lies on."""

from __future__ import annotations

from pathlib import Path

import pytest

from kitae.storage.mounts import UNKNOWN, Mount, mount_of, shared_mount


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of mounts as the kernel writes it, over folders of this test."""
    for name in ("home", "home/me/fast", "shared disk", "fsx"):
        (tmp_path / name).mkdir(parents=True)
    file = tmp_path / "mounts"
    lines = [
        "/dev/nvme0n1p1 / ext4 rw,relatime 0 0",
        f"fs-0123.efs.us-west-2.amazonaws.com:/ {tmp_path}/home nfs4 rw,vers=4.1 0 0",
        f"/dev/nvme1n1 {tmp_path}/home/me/fast xfs rw 0 0",
        f"10.0.0.2@tcp:/abcd {tmp_path}/fsx lustre rw 0 0",
        f"server:/x {tmp_path}/shared\\040disk nfs rw 0 0",
        "broken",
    ]
    file.write_text("\n".join(lines))
    return file


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("home/me/x/y", "nfs4", True),
        ("home/me/fast/cache", "xfs", False),
        ("fsx", "lustre", True),
        ("shared disk/a", "nfs", True),
        ("homely", "ext4", False),
    ],
)
def test_the_deepest_mount_counts(table: Path, path: str, kind: str, network: bool):
    mount = mount_of(table.parent / path, table)
    assert (mount.kind, mount.is_network) == (kind, network)


def test_a_link_is_followed(table: Path):
    (table.parent / "link").symlink_to(table.parent / "fsx")
    assert mount_of(table.parent / "link/cache", table).source == "10.0.0.2@tcp:/abcd"


def test_of_two_mounts_on_a_folder_the_later_counts(table: Path):
    table.write_text("a / ext4 rw 0 0\nb / nfs rw 0 0\n")
    assert mount_of(Path("/x"), table) == Mount("b", Path("/"), "nfs")


def test_where_there_is_no_table_nothing_is_known(tmp_path: Path):
    assert mount_of(tmp_path, tmp_path / "none") == UNKNOWN
    assert not UNKNOWN.is_network


@pytest.mark.parametrize(
    "kind", ["cifs", "smb3", "beegfs_nodev", "fuse.s3fs", "fuse.mount-s3", "efs", "gpfs", "9p"]
)
def test_kinds_that_other_machines_see(kind: str):
    assert Mount("", Path("/"), kind).is_network


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "tmpfs", "overlay", "btrfs", "zfs", "fuse", "fuse.overlayfs", ""]
)
def test_kinds_of_one_machine(kind: str):
    assert not Mount("", Path("/"), kind).is_network


def test_a_folder_named_after_the_machine_is_its_own(table: Path):
    def shared(path: str) -> str | None:
        mount = shared_mount(table.parent / path, "node-3", lambda place: mount_of(place, table))
        return None if mount is None else mount.kind

    assert [shared(path) for path in ("home/me", "home/node-3/x", "home/me/fast")] == ["nfs4", None, None]
