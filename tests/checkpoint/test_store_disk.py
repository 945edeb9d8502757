"""Disks that are full, read-only or broken: the last good step stays, and the message says what is needed."""

import errno
import os
import re
import subprocess

import pytest
import torch
from native_case import DictSource, names, save, store_at

from kitae.errors import StorageError
from kitae.storage.disk import free_bytes

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path, mount_small):
    """A file system of 8 MiB of its own."""
    return mount_small(tmp_path / "disk", 8 * 1024)


class Unread(DictSource):
    """A source that must not be asked for values."""

    def read(self, name, box=None):
        raise AssertionError("read before the space was checked")


def failure(store, step):
    """What a save is refused with, or None."""
    try:
        save(store, step)
    except StorageError as error:
        return str(error)
    return None


def rest(folder):
    return {path.name for path in folder.iterdir()} - {".lock", "index.json", "latest", "filler"}


class Filling(DictSource):
    """Something else fills the disk after the save has looked at the free space."""

    def __init__(self, tensors, folder):
        super().__init__(tensors)
        self.folder = folder

    def read(self, name, box=None):
        with (self.folder / "filler").open("ab") as file:
            file.write(bytes(int(1.5 * MIB)))
        return super().read(name, box)


def test_too_little_space_is_seen_before_anything_is_written(small_disk):
    store = store_at(small_disk)
    save(store, 1)
    free = free_bytes(small_disk)
    with pytest.raises(StorageError) as caught:
        store.save(
            2, {"weights": Unread({"w": torch.zeros(9 * MIB // 4)})}, state={}, config={}, recipe_hash="r"
        )
    need = 9 * MIB + 1024
    message = str(caught.value)
    assert message.startswith(f"cannot save to {small_disk}: No space left on device")
    assert f"needed are {need:,} bytes" in message
    assert f"free are {free:,} bytes" in message
    assert "checkpoint.keep" in message
    assert rest(small_disk) == {"step-00000001"}


def test_a_disk_that_fills_up_during_a_save(small_disk):
    """Case 10: ENOSPC in the middle; nothing is left over, the last good step is found, later saves work."""
    store = store_at(small_disk)
    save(store, 1)
    tensors = {f"t{i}": torch.ones(MIB // 4) for i in range(6)}
    with pytest.raises(StorageError, match=r"No space left.*needed are 6,297,600 bytes, free are") as caught:
        store.save(2, {"weights": Filling(tensors, small_disk)}, state={}, config={}, recipe_hash="r")
    assert str(small_disk) in str(caught.value)
    assert rest(small_disk) == {"step-00000001"}
    assert store.latest().step == 1
    (small_disk / "filler").unlink()
    store.save(2, {"weights": DictSource(tensors)}, state={}, config={}, recipe_hash="r")
    assert store.latest().step == 2


def test_a_read_only_disk(small_disk):
    store = store_at(small_disk)
    save(store, 1)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(
        StorageError, match=r"(?i)read-only file system.*put the run's folder or the cache .* elsewhere"
    ):
        save(store, 2)
    assert store.latest().step == 1
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    assert rest(small_disk) == {"step-00000001"}


@pytest.mark.parametrize(
    ("number", "way_out"),
    [
        (errno.EDQUOT, "quota"),
        (errno.EIO, "another disk"),
        (errno.EACCES, "allow writing"),
        (errno.ENOSPC, "free some space"),
        (errno.ESTALE, "check that the folder is there"),
    ],
)
def test_every_fault_of_every_sync(tmp_path, monkeypatch, number, way_out):
    """Whichever sync fails: a StorageError, nothing left over, and a complete step is found."""
    store = store_at(tmp_path, keep=1)
    save(store, 1)
    sync = os.fsync
    pattern = rf"cannot save to .*{re.escape(os.strerror(number))}.*needed are .* free are .*{way_out}"
    for failing in range(1, 30):
        count = 0

        def fail(descriptor, failing=failing):
            nonlocal count
            count += 1
            if count == failing:
                raise OSError(number, os.strerror(number))
            sync(descriptor)

        step = store.latest().step + 1
        monkeypatch.setattr(os, "fsync", fail)
        message = failure(store, step)
        monkeypatch.setattr(os, "fsync", sync)
        if count < failing:
            break
        assert re.search(pattern, message), message
        assert store.latest().step in (step - 1, step)
        assert not list(tmp_path.glob(".tmp-*"))
    assert message is None
    assert failing > 8
    assert names(tmp_path) == store.steps() == [store.latest().step]


def test_a_path_that_cannot_be_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot save to"):
        save(store_at(tmp_path / "file" / "checkpoints"), 1)
