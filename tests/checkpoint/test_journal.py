"""What a journal says is on the disk, and only that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from native_case import DictSource

from kitae.checkpoint import journal as module
from kitae.checkpoint.hf import HfSink
from kitae.checkpoint.journal import Journal, go_on, read_journal
from kitae.checkpoint.replace import FolderInPlace
from kitae.storage.folders import JOURNAL_NAME

MADE = {"source": "model", "files": {"a": [1, 2]}}


@pytest.fixture
def journal(tmp_path):
    return Journal.begin(tmp_path / "home", MADE, checked=True)


def put(journal, name, nbytes=10, kind="weights"):
    """A file of a tensor, noted."""
    path = journal.folder / "out" / "model" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(nbytes))
    journal.wrote(kind, name, nbytes, [path])


def test_a_new_one(journal):
    noted = read_journal(journal.folder)
    assert (noted.made, noted.done, noted.complete, noted.files) == (MADE, {}, False, {})
    assert journal.done() == frozenset()
    assert not journal.keep()
    journal.close()


def test_what_is_kept_comes_back(journal, tmp_path):
    for name in "ab":
        put(journal, name)
    put(journal, "c", kind="exp_avg")
    assert journal.keep()
    journal.close()
    again = Journal.take_over(journal.folder, tmp_path / "other", checked=True)
    assert again.done() == {"a", "b"}
    assert again.done("exp_avg") == {"c"}
    assert (again.count, again.made, again.complete) == (3, MADE, False)
    assert not journal.folder.exists()
    put(again, "d")
    again.keep()
    again.finish()
    again.close()
    noted = read_journal(tmp_path / "other")
    assert noted.done == {"weights": frozenset("abd"), "exp_avg": frozenset("c")}
    assert noted.complete
    assert noted.files == {f"out/model/{name}": 10 for name in "abcd"}


def test_a_line_comes_after_the_files_and_their_folders(journal, monkeypatch, tmp_path):
    """Data, names, then the word that they are there: the journal never runs ahead of the disk."""
    done, sync = [], os.fsync
    path_of = lambda fd: str(Path(f"/proc/self/fd/{fd}").readlink().relative_to(tmp_path))  # noqa: E731
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append(path_of(fd)), sync(fd))[1])
    append = Journal._append
    monkeypatch.setattr(Journal, "_append", lambda self, body: (done.append("line"), append(self, body))[1])
    put(journal, "a")
    put(journal, "b")
    journal.keep()
    *before, line, last = done
    assert sorted(before) == [
        ".",
        "home",
        "home/out",
        "home/out/model",
        "home/out/model/a",
        "home/out/model/b",
    ]
    assert (line, last) == ("line", f"home/{JOURNAL_NAME}")
    journal.close()


def test_syncs_are_few(journal, monkeypatch):
    """One for so many bytes, however many tensors these are."""
    monkeypatch.setattr(module, "BATCH_BYTES", 100)
    synced = []
    monkeypatch.setattr(module, "sync_all", lambda paths: synced.append({path.name for path in paths}))
    for number in range(25):
        put(journal, f"t{number}")
        journal._settled.result()
    assert [len({name for name in one if name[1:].isdigit()}) for one in synced] == [10, 10]
    assert journal.count == 20
    journal.keep()
    assert journal.count == 25
    journal.close()


def test_what_could_not_be_synced_is_not_noted_and_nothing_after_it(journal, monkeypatch):
    put(journal, "a")
    journal.keep()
    real = module.sync_all

    def fail(paths):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(module, "sync_all", fail)
    put(journal, "b")
    journal._settle()
    assert journal._settled.exception() is not None
    monkeypatch.setattr(module, "sync_all", real)
    monkeypatch.setattr(module, "BATCH_BYTES", 1)
    with pytest.raises(OSError, match="Input/output"):
        put(journal, "c")
    assert journal.keep()
    with pytest.raises(OSError, match="Input/output"):
        journal.finish()
    journal.close()
    noted = read_journal(journal.folder)
    assert noted.done == {"weights": frozenset("a")}
    assert not noted.complete


@pytest.mark.parametrize(
    "torn", [b'{"done": {"weights": ["c"', b'{"done": {"weights": ["c"]}}', b"\0\0\0\n{}\n"]
)
def test_a_torn_end_is_cut_off(journal, tmp_path, torn):
    put(journal, "a")
    journal.keep()
    journal.close()
    path = journal.folder / JOURNAL_NAME
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert read_journal(journal.folder).done == {"weights": frozenset("a")}
    again = Journal.take_over(journal.folder, tmp_path / "again", checked=True)
    assert (tmp_path / "again" / JOURNAL_NAME).read_bytes() == whole + b'{"checked": true}\n'
    put(again, "b")
    again.keep()
    again.close()
    assert read_journal(tmp_path / "again").done == {"weights": frozenset("ab")}


@pytest.mark.parametrize("content", [b"", b"x\n", b"[]\n", b"{}\n", b'{"made"'])
def test_what_is_no_journal(tmp_path, content):
    (tmp_path / JOURNAL_NAME).write_bytes(content)
    assert read_journal(tmp_path) is None
    assert Journal.take_over(tmp_path, tmp_path.with_name("other"), checked=True) is None
    assert read_journal(tmp_path / "not there") is None


def test_what_nobody_has_looked_at(journal, tmp_path):
    put(journal, "a")
    journal.keep()
    journal.close()
    again = Journal.take_over(journal.folder, tmp_path / "two", checked=False)
    assert again.done() == {"a"}
    put(again, "b")
    again.keep()
    again.finish()
    again.close()
    less, more = (read_journal(again.folder, checked=checked) for checked in (True, False))
    assert (less.done, less.complete) == ({"weights": frozenset("a")}, False)
    assert (more.done, more.complete) == ({"weights": frozenset("ab")}, True)
    assert less.size_bytes == more.size_bytes
    Journal.take_over(again.folder, tmp_path / "three", checked=True).close()
    assert not read_journal(tmp_path / "three").complete


@pytest.mark.parametrize("change", [Path.unlink, lambda path: os.truncate(path, 9)])
def test_files_that_are_gone_or_shorter(journal, change):
    put(journal, "a")
    journal.keep()
    journal.close()
    change(journal.folder / "out/model/a")
    assert read_journal(journal.folder) is None


def test_one_has_it_at_a_time(journal, tmp_path):
    assert Journal.take_over(journal.folder, tmp_path / "other", checked=True) is None
    assert journal.folder.exists()
    journal.close()
    mine = Journal.take_over(journal.folder, tmp_path / "other", checked=True)
    assert Journal.take_over(mine.folder, tmp_path / "third", checked=True) is None
    mine.close()


@pytest.mark.parametrize("name", ["重み.ü", "not utf-8: \udcff"])
def test_names_are_as_they_are(journal, name):
    put(journal, name)
    journal.keep()
    journal.close()
    assert read_journal(journal.folder).done == {"weights": {name}}


def test_a_disk_without_room_for_a_journal(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "write_synced", lambda *given: os.open(tmp_path / "no folder" / "f", 0))
    with pytest.raises(FileNotFoundError):
        Journal.begin(tmp_path / "home", MADE, checked=True)
    assert list(tmp_path.iterdir()) == []


def test_a_tensor_is_noted_when_all_of_it_is_written(journal, monkeypatch):
    monkeypatch.setattr("kitae.checkpoint.pipe.blocks.__defaults__", (16,))
    source = DictSource({"a": torch.arange(12.0).view(6, 2), "b": torch.ones(3)})
    noted = []
    # Complete when it is noted, however many parts it came in.
    monkeypatch.setattr(
        journal, "wrote", lambda *given: noted.append((*given, sink._coverage._written["a"].count))
    )
    journal._done = {"weights": frozenset("b")}
    out = journal.folder / "out"
    with HfSink(out, source.tensors(), config={}, making=FolderInPlace(out, journal.done())) as sink:
        go_on(source, sink, journal)
    assert noted == [("weights", "a", 48, [out / "model.safetensors"], 12)]
    journal.close()
