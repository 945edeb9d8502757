"""Files that are replaced as a whole, and their hashes."""

import hashlib
import os

import pytest

from kitae.errors import StorageError
from kitae.storage import files


def test_replace_file_keeps_the_old_one_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "index.json"
    files.replace_file(path, b"old")
    files.replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    monkeypatch.setattr(os, "fsync", lambda descriptor: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        files.replace_file(path, b"newer")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("index.json", b"new")]


def test_replace_file_makes_its_folder_and_leaves_no_other_name(tmp_path):
    path = tmp_path / "a" / "b.json"
    files.replace_file(path, b"{}")
    assert [one.read_bytes() for one in path.parent.iterdir()] == [b"{}"]


def test_replace_file_tells_what_the_system_says(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot save to .*/file/x: .*; needed are 3 bytes, free are"):
        files.replace_file(tmp_path / "file" / "x", b"abc")


def test_write_synced_never_overwrites(tmp_path):
    files.write_synced(tmp_path / "f", b"first")
    with pytest.raises(FileExistsError):
        files.write_synced(tmp_path / "f", b"second")
    assert (tmp_path / "f").read_bytes() == b"first"


@pytest.mark.parametrize("size", [0, 5, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_hash_of_a_file_is_that_of_its_bytes(tmp_path, size):
    content = bytes(range(251)) * (size // 251 + 1)
    (tmp_path / "f").write_bytes(content[:size])
    assert files.file_sha256(tmp_path / "f") == hashlib.sha256(content[:size]).hexdigest()


def test_many_are_synced_and_the_first_error_is_raised(tmp_path):
    for name in "ab":
        (tmp_path / name).touch()
    files.sync_all([tmp_path / "a", tmp_path / "b", tmp_path])
    with pytest.raises(FileNotFoundError):
        files.sync_all([tmp_path / "a", tmp_path / "c"])
