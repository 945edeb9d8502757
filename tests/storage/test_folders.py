"""Folders that appear as a whole, and what killed writers leave."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kitae.storage import files, folders
from kitae.storage.lock import exclusive


def test_publish_folder_replaces(tmp_path):
    final = tmp_path / "step-00000001"
    for content in ("old", "new"):
        with folders.temporary_folder(final) as temporary:
            (temporary / "f").write_text(content)
            folders.publish_folder(temporary, final)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert (final / "f").read_text() == "new"


def test_publish_folder_puts_the_old_one_back_when_the_new_cannot_be_named(tmp_path, monkeypatch):
    final = tmp_path / "step-00000001"
    final.mkdir()
    (final / "f").write_text("old")
    (tmp_path / "new").mkdir()
    rename = Path.rename

    def refuse(path, to):
        if path.name == "new":
            raise PermissionError
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(PermissionError):
        folders.publish_folder(tmp_path / "new", final)
    assert (final / "f").read_text() == "old"


def test_order_of_publishing(tmp_path, monkeypatch):
    """Content, then its folder, then the name, then the parent: nothing is named before it is on the disk."""
    done = []
    sync, rename = os.fsync, Path.rename
    path_of = lambda fd: str(Path(f"/proc/self/fd/{fd}").readlink())  # noqa: E731
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append(path_of(fd)), sync(fd))[1])
    monkeypatch.setattr(Path, "rename", lambda path, to: (done.append(f"-> {to.name}"), rename(path, to))[1])
    final = tmp_path / "step-00000001"
    with folders.temporary_folder(final) as temporary:
        files.write_synced(temporary / "data", b"x")
        folders.publish_folder(temporary, final)
    assert done == [str(temporary / "data"), str(temporary), "-> step-00000001", str(tmp_path)]


def test_sweep_takes_only_what_publishing_leaves(tmp_path):
    spared = [".tmp-notes", ".trash", "old-step-1-2-01234567", ".tmp-step-1-2-0123", ".DS_Store"]
    for name in spared:
        (tmp_path / name).mkdir()
    (tmp_path / "kept").mkdir()
    for name in (".tmp-a-1-01234567", ".trash-b-2-89abcdef", ".old-kept-3-01234567", ".old-lost-3-01234567"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").touch()
    (tmp_path / ".tmp-index.json-4-01234567").touch()
    assert folders.set_aside(tmp_path / "lost").name == ".old-lost-3-01234567"
    assert folders.set_aside(tmp_path / "kept").name == ".old-kept-3-01234567"
    assert folders.set_aside(tmp_path / "index.json") is None
    done = folders.sweep(tmp_path)
    assert sum(line.startswith("removed") for line in done) == 4
    assert sum(line.startswith("restored") for line in done) == 1
    assert {path.name for path in tmp_path.iterdir()} == {*spared, "kept", "lost"}


def test_every_folder_inside_is_synced_before_the_name(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(folders, "sync", synced.append)
    with folders.temporary_folder(tmp_path / "final") as temporary:
        (temporary / "a" / "b").mkdir(parents=True)
        folders.publish_folder(temporary, tmp_path / "final")
    assert set(synced[:-2]) == {temporary / "a", temporary / "a" / "b"}
    assert synced[-2:] == [temporary, tmp_path]


def test_sweep_of_one_name_spares_the_others_and_the_living(tmp_path):
    dead, alive = 2**22 + 1, os.getpid()  # process numbers end at 2**22
    left = {n: tmp_path / f".{n}-01234567" for n in (f"tmp-a-{dead}", f"tmp-a-{alive}", f"tmp-b-{dead}")}
    for path in left.values():
        path.mkdir()
    folders.sweep(tmp_path, "a", spare_living=True)
    assert [path.exists() for path in left.values()] == [False, True, True]
    folders.sweep(tmp_path, "a")
    assert [path.exists() for path in left.values()] == [False, False, True]
    assert folders.sweep(tmp_path / "not there") == []


def test_sweep_goes_by_the_lock_of_a_journal(tmp_path):
    """A number of a process may be another's since, or of another machine."""
    dead, alive = 2**22 + 1, os.getpid()
    left = {n: tmp_path / f".tmp-a-{n}-01234567" for n in (dead, alive)}
    for path in left.values():
        path.mkdir()
        (path / folders.JOURNAL_NAME).touch()
    assert folders.temporary_of(tmp_path / "a") == sorted(left.values())
    assert folders.temporary_of(tmp_path / "b") == []
    with exclusive(left[dead] / folders.JOURNAL_NAME):
        [line] = folders.sweep(tmp_path, "a", spare_living=True)
    assert line == f"removed {left[alive]}, left by an interrupted save"
    assert [path.name for path in tmp_path.iterdir()] == [left[dead].name]
    assert folders.sweep(tmp_path, "a", spare=[left[dead]]) == []
    assert len(folders.sweep(tmp_path, "a", spare_living=True)) == 1


def test_removing_a_folder_that_is_gone_is_no_error(tmp_path):
    (tmp_path / "there").mkdir()
    for _ in range(2):
        folders.remove_folder(tmp_path / "there")
    assert list(tmp_path.iterdir()) == []


def test_nothing_imports_torch():
    code = (
        "import sys, kitae.storage.folders, kitae.storage.lock, kitae.storage.disk; "
        "print('torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
