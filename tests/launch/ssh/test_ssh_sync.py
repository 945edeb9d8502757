"""Objects arrive whole, once, and only those that lack."""

import hashlib
import os
import shutil

import pytest

from kitae.errors import StorageError
from kitae.launch.ssh.sync import bring

RSYNC = pytest.param(True, marks=pytest.mark.skipif(shutil.which("rsync") is None, reason="no rsync here"))
both_ways = pytest.mark.parametrize("rsync", [False, RSYNC], ids=["tar", "rsync"])


@pytest.fixture
def objects(tmp_path):
    found = {}
    for number, size in enumerate((0, 5, 300_000, 700_000)):
        path = tmp_path / f"file {number}"
        path.write_bytes(os.urandom(size))
        found[hashlib.sha256(path.read_bytes()).hexdigest()] = path
    return found


def there(node):
    return {one.name: one.read_bytes() for one in (node.work / "objects").iterdir() if one.is_file()}


@both_ways
def test_what_lacks_is_brought_once(node, head, objects, rsync):
    names = list(objects)
    first = {name: objects[name] for name in names[:3]}
    assert bring(head, first, rsync) == 300_005
    assert bring(head, objects, rsync) == 700_000
    assert bring(head, objects, rsync) == 0
    assert there(node) == {name: path.read_bytes() for name, path in objects.items()}
    assert not [one for one in (node.work / "objects/incoming").iterdir() if one.is_file()]


def test_what_came_before_a_drop_is_not_brought_again(node, head, objects, told, waited):
    node.plan("", "cut-in 500000", "")
    assert bring(head, objects, rsync=False) == 1_000_005
    assert waited == [1]
    brought = [line for line in told if "files" in line]
    assert brought == ["ssh: 4 files, 1,000,005 bytes to head", "ssh: 1 files, 700,000 bytes to head"]
    assert there(node) == {name: path.read_bytes() for name, path in objects.items()}


@pytest.mark.skipif(shutil.which("rsync") is None, reason="no rsync here")
def test_rsync_that_drops_goes_on(node, head, objects, waited):
    node.plan("", "cut 8", "", "refuse", "")
    assert bring(head, objects, rsync=True) == 1_000_005
    assert len(waited) == 2
    assert there(node) == {name: path.read_bytes() for name, path in objects.items()}


def test_what_arrives_broken_is_brought_again(node, head, objects):
    name = list(objects)[2]
    (node.work / "objects/incoming" / name).write_bytes(bytes(300_000))
    bring(head, objects, rsync=False)
    assert there(node)[name] == objects[name].read_bytes()


def test_a_file_that_changes_meanwhile_is_told(head, objects, tmp_path):
    name = list(objects)[1]
    objects[name].write_text("other")
    with pytest.raises(StorageError, match=f"{objects[name]} does not arrive whole on head"):
        bring(head, {name: objects[name]}, rsync=False)


def test_a_disk_without_room_is_told_before_anything_is_sent(node, head, objects, mount_small):
    from dataclasses import replace

    small = mount_small(node.folder / "small", 512)
    (small / "objects").mkdir()
    with pytest.raises(
        StorageError, match=r"the disk of .*small there is full: needed are 1,000,005 bytes, free"
    ):
        bring(replace(head, folder=str(small)), objects, rsync=False)
