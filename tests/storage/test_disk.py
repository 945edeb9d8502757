"""What a failing disk is told with."""

import errno
import re

import pytest

from kitae.errors import DataError, StorageError
from kitae.storage import disk


def test_free_space_of_a_folder_that_is_still_to_be_made(tmp_path):
    assert disk.free_bytes(tmp_path / "a" / "b") > 0


def full():
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_message_names_path_reason_need_room_and_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "free_bytes", lambda path: 1000)
    expected = (
        f"cannot save to {tmp_path}: No space left on device; needed are 2,000 bytes, free are 1,000 bytes; "
        "free some space, lower checkpoint.keep, or put the run's folder or the cache (KITAE_CACHE) on a "
        "larger disk"
    )
    with pytest.raises(StorageError, match=f"^{re.escape(expected)}$"), disk.storage_errors(tmp_path, 2000):
        full()


def test_a_need_may_be_known_late_or_never(tmp_path):
    known = []
    with pytest.raises(StorageError, match="needed are 7 bytes"), disk.storage_errors(tmp_path, known.pop):
        known.append(7) or full()
    with (
        pytest.raises(StorageError, match=r"on device; free are [\d,]+ bytes; "),
        disk.storage_errors(tmp_path),
    ):
        full()


def test_the_innermost_message_stays_and_other_errors_are_let_through(tmp_path):
    outer, inner = disk.storage_errors(tmp_path / "outer"), disk.storage_errors(tmp_path / "inner")
    with pytest.raises(StorageError, match="/inner: "), outer, inner:
        full()
    with pytest.raises(DataError), disk.storage_errors(tmp_path):
        raise DataError("a text")


def test_space_is_checked_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "free_bytes", lambda path: 10)
    disk.check_space(tmp_path, 10)
    with pytest.raises(StorageError, match="needed are 11 bytes, free are 10 bytes"):
        disk.check_space(tmp_path, 11)
    monkeypatch.setattr(disk, "free_bytes", lambda path: None)
    disk.check_space(tmp_path, 10**18)
