"""Files and folders that appear as a whole."""

import hashlib
import threading

import pytest

from kitae.checkpoint import publish


def test_hashed_file_knows_what_it_wrote(tmp_path):
    parts = [b"", b"a", bytes(range(256)), b"end"]
    file = publish.HashedFile(tmp_path / "f")
    for part in parts:
        file.write(memoryview(part))
    stored = file.close()
    whole = b"".join(parts)
    assert (tmp_path / "f").read_bytes() == whole
    assert (stored.size_bytes, stored.sha256) == (len(whole), hashlib.sha256(whole).hexdigest())


def test_short_writes_are_continued(tmp_path):
    file = publish.HashedFile(tmp_path / "f")
    raw = file._file

    class Short:
        def write(self, data):
            return raw.write(data[:3])

    file._file = Short()
    file.write(memoryview(b"0123456789"))
    file._file = raw
    assert file.close().sha256 == hashlib.sha256(b"0123456789").hexdigest()
    assert (tmp_path / "f").read_bytes() == b"0123456789"


def test_replace_file_keeps_the_old_one_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "index.json"
    publish.replace_file(path, b"old")
    publish.replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    monkeypatch.setattr(publish.os, "fsync", lambda descriptor: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        publish.replace_file(path, b"newer")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("index.json", b"new")]


def test_publish_folder_replaces(tmp_path):
    final = tmp_path / "step-00000001"
    for content in ("old", "new"):
        with publish.temporary_folder(final) as temporary:
            (temporary / "f").write_text(content)
            publish.publish_folder(temporary, final)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert (final / "f").read_text() == "new"


def test_publish_folder_puts_the_old_one_back_when_the_new_cannot_be_named(tmp_path):
    final = tmp_path / "step-00000001"
    final.mkdir()
    (final / "f").write_text("old")
    with pytest.raises(FileNotFoundError):
        publish.publish_folder(tmp_path / "not there", final)
    assert (final / "f").read_text() == "old"


def test_order_of_publishing(tmp_path, monkeypatch):
    """Content, then its folder, then the name, then the parent: nothing is named before it is on the disk."""
    done = []
    sync, rename = publish.os.fsync, publish.Path.rename
    link = "/proc/self/fd/{}"
    monkeypatch.setattr(
        publish.os, "fsync", lambda fd: (done.append(publish.os.readlink(link.format(fd))), sync(fd))[1]
    )
    monkeypatch.setattr(
        publish.Path, "rename", lambda path, to: (done.append(f"-> {to.name}"), rename(path, to))[1]
    )
    final = tmp_path / "step-00000001"
    with publish.temporary_folder(final) as temporary:
        publish.write_synced(temporary / "data", b"x")
        publish.publish_folder(temporary, final)
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
    assert publish.set_aside(tmp_path / "lost").name == ".old-lost-3-01234567"
    assert publish.set_aside(tmp_path / "kept").name == ".old-kept-3-01234567"
    assert publish.set_aside(tmp_path / "index.json") is None
    done = publish.sweep(tmp_path)
    assert sum(line.startswith("removed") for line in done) == 4
    assert sum(line.startswith("restored") for line in done) == 1
    assert {path.name for path in tmp_path.iterdir()} == {*spared, "kept", "lost"}


def test_lock_is_held_once(tmp_path):
    with publish.exclusive(tmp_path, wait=True) as first, publish.exclusive(tmp_path, wait=False) as second:
        assert (first, second) == (True, False)
    with publish.exclusive(tmp_path, wait=False) as again:
        assert again


def test_a_second_saver_waits_for_the_first(tmp_path):
    order = []

    def second():
        with publish.exclusive(tmp_path, wait=True) as held:
            order.append(("second", held))

    thread = threading.Thread(target=second)
    with publish.exclusive(tmp_path, wait=True) as held:
        thread.start()
        thread.join(0.05)
        order.append(("first", held))
    thread.join()
    assert order == [("first", True), ("second", True)]


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(publish.fcntl, "flock", refuse)
    with publish.exclusive(tmp_path, wait=True) as held:
        assert not held


def test_free_space_of_a_folder_that_is_still_to_be_made(tmp_path):
    assert publish.free_bytes(tmp_path / "a" / "b") > 0
