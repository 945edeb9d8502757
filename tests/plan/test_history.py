"""The history is only appended to, by one at a time; it survives kills, and does not grow for ever."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from calibrated import ENTRY

from kitae.errors import StorageError
from kitae.plan import history
from kitae.plan.history import append, history_path, read


def test_what_is_appended_is_read_in_order(tmp_path: Path):
    path = tmp_path / "state" / "history.jsonl"
    assert read(path) == []
    append([ENTRY], path)
    append([replace(ENTRY, attempt=2), replace(ENTRY, attempt=3)], path)
    assert read(path) == [ENTRY, replace(ENTRY, attempt=2), replace(ENTRY, attempt=3)]


def test_lines_that_are_torn_or_strange_are_passed_over(tmp_path: Path):
    path = tmp_path / "history.jsonl"
    append([ENTRY], path)
    with path.open("a") as file:
        file.write('[]\n{"format": 9}\n\xff\n{"format": 1}\n{"form')
    append([replace(ENTRY, attempt=2)], path)
    assert read(path) == [ENTRY, replace(ENTRY, attempt=2)]


def test_a_field_of_a_later_kitae_is_no_harm(tmp_path: Path):
    path = tmp_path / "history.jsonl"
    append([ENTRY], path)
    line = {**json.loads(path.read_text()), "more": 1}
    path.write_text(json.dumps(line) + "\n")
    assert read(path) == [ENTRY]


def test_the_oldest_go_when_there_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(history, "KEPT", 3)
    monkeypatch.setattr(history, "MOST", 4)
    path = tmp_path / "history.jsonl"
    for number in range(5):
        append([replace(ENTRY, attempt=number)], path)
    assert [one.attempt for one in read(path)] == [2, 3, 4]
    append([replace(ENTRY, attempt=5)], path)
    assert [one.attempt for one in read(path)] == [2, 3, 4, 5]


def test_several_writers_lose_nothing(tmp_path: Path):
    path = tmp_path / "history.jsonl"
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: append([replace(ENTRY, attempt=number)], path), range(20)))
    assert sorted(one.attempt for one in read(path)) == list(range(20))


def test_a_disk_that_does_not_take_it_is_told_of(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        append([ENTRY], tmp_path / "file" / "history.jsonl")


def test_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A cache that is set to where it usually is changes nothing: jobs of a cluster are told of it."""
    for name in ("KITAE_STATE", "KITAE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert history_path() == tmp_path / "xdg/kitae/history.jsonl"
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / ".cache/kitae"))
    assert history_path() == tmp_path / "xdg/kitae/history.jsonl"
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    assert history_path() == tmp_path / "cache/state/history.jsonl"
    monkeypatch.setenv("KITAE_STATE", str(tmp_path / "state"))
    assert history_path() == tmp_path / "state/history.jsonl"
