"""`kitae cache`: what is listed, what goes and what stays, and how caches are carried."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path

import pytest
from job_case import kitae
from neuron_cache import VERSION, write_entry

from kitae.precompile.caches import CACHES, Place
from kitae.precompile.entries import STATES
from kitae.precompile.prune import Wanted, chosen

OLD = 1_000_000_000


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Neuron cache with one entry of each state; kitae's own is empty."""
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "kitae"))
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "neuron"))
    for state in STATES:
        write_entry(tmp_path / "neuron", name(state), state)
    return tmp_path / "neuron"


def name(state: str) -> str:
    return f"MODULE_{state.replace('-', '')}+aaaa"


def left(root: Path) -> set[str]:
    return {entry.state for entry in Place(CACHES["neuron"], root).entries()}


def age(folder: Path, seconds: int = OLD) -> None:
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (seconds, seconds))


def facts(capsys: pytest.CaptureFixture, *words: str | Path) -> list[dict]:
    assert kitae("cache", "list", "--json", *words) == 0
    return json.loads(capsys.readouterr().out)


def test_states_and_sizes_are_listed(root: Path, capsys):
    assert kitae("cache", "list") == 0
    output = capsys.readouterr().out
    assert str(root) in output
    for state in STATES:
        assert f"{state:12}     1" in output
    assert kitae("cache", "list", "--entries") == 0
    output = capsys.readouterr().out
    assert "[NLA001]  Unhandled exception" in output
    assert "left behind: no compiler runs here" in output


def test_the_same_as_json(root: Path, capsys):
    (cache,) = facts(capsys)
    assert (cache["kind"], cache["root"], cache["states"]) == ("neuron", str(root), dict.fromkeys(STATES, 1))
    assert cache["size_bytes"] == sum(entry["size_bytes"] for entry in cache["entries"])
    (locked,) = [entry for entry in cache["entries"] if entry["state"] == "locked"]
    assert locked["locks"][0]["holder"] == "gone"


def test_another_folder_can_be_looked_at(root: Path, capsys, tmp_path):
    write_entry(tmp_path / "other", name("done"))
    (cache,) = facts(capsys, "--kind", "neuron", "--root", tmp_path / "other")
    assert cache["states"] == {"done": 1}


def test_where_there_is_none_that_is_said(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "kitae"))
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", "s3://bucket/x")
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(tmp_path / "none"))
    assert kitae("cache", "list") == 0
    assert capsys.readouterr().out == "there are no caches here\n"


def test_a_cache_with_locks_on_a_shared_file_system_is_warned_of(root: Path, capsys, monkeypatch, tmp_path):
    (tmp_path / "mounts").write_text(f"server:/x {tmp_path} lustre rw 0 0\n")
    monkeypatch.setattr("kitae.storage.mounts.MOUNTS", tmp_path / "mounts")
    kitae("cache", "list")
    assert "warning: on lustre, where its locks break" in capsys.readouterr().out


# ---- what goes


def test_nothing_goes_without_yes(root: Path, capsys):
    for words in (("prune", "--state", "failed"), ("clear-failed",), ("clear-locks",)):
        assert kitae("cache", *words) == 0
        assert "would go" in capsys.readouterr().out
    assert left(root) == set(STATES)


def test_failed_and_half_written_entries_go_on_request(root: Path, capsys):
    assert kitae("cache", "clear-failed", "--yes") == 0
    assert "2 entries" in capsys.readouterr().out
    assert left(root) == {"done", "locked", "empty"}


def test_a_lock_that_was_left_goes_and_its_entry_stays(root: Path, capsys):
    assert kitae("cache", "clear-locks", "--yes") == 0
    assert "1 locks removed" in capsys.readouterr().out
    assert left(root) == {"done", "failed", "half-written", "empty"}


def test_a_lock_that_is_held_stays_and_so_does_what_is_compiled(root: Path, capsys):
    lock = root / VERSION / name("locked") / "model.hlo_module.pb.lock"
    age(lock.parent)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert kitae("cache", "clear-locks", "--yes") == 0
        assert "0 locks removed; 1 stay: held, or nobody can tell" in capsys.readouterr().out
        assert kitae("cache", "prune", "--state", "locked", "--max-size", "0B", "--yes") == 0
    assert left(root) == {"locked"}


def test_old_entries_go(root: Path):
    age(root / VERSION / name("done"))
    assert kitae("cache", "prune", "--older-than", "30d", "--yes") == 0
    assert left(root) == set(STATES) - {"done"}


def test_entries_of_other_compilers_go(root: Path):
    write_entry(root, name("done"), version="neuronxcc-2.12.0")
    assert kitae("cache", "prune", "--other-than", VERSION, "--yes") == 0
    assert left(root) == set(STATES)
    assert not any((root / "neuronxcc-2.12.0").iterdir())


def test_the_oldest_go_until_the_rest_is_small_enough(tmp_path: Path):
    for number in range(4):
        age(write_entry(tmp_path, f"MODULE_{number}+a", neff=b"x" * 1000), OLD + number)
    entries = Place(CACHES["neuron"], tmp_path).entries()
    size = entries[0].size_bytes
    gone = chosen(entries, Wanted(most_bytes=2 * size))
    assert [entry.name for entry in gone] == ["MODULE_0+a", "MODULE_1+a"]
    assert chosen(entries, Wanted(most_bytes=4 * size)) == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "say what is to go"),
        (("--state", "bad"), "there is no such state; there are done, failed"),
        (("--older-than", "soon"), "--older-than soon: write it as 30d, 12h or 90m"),
        (("--max-size", "²GB"), "--max-size ²GB: write"),
        (("--max-size", "50"), "--max-size 50: write it as 50GB or 800MB"),
        (("--state", "done", "--kind", "x"), "--kind x: there is no such cache; there are neuron"),
        (("--state", "done", "--root", "/x"), "--root needs one --kind"),
    ],
)
def test_what_is_asked_wrongly(root: Path, capsys, words: tuple[str, ...], text: str):
    assert kitae("cache", "prune", *words) == 2
    assert text in capsys.readouterr().err
    assert left(root) == set(STATES)


def test_what_cannot_be_removed_is_told_and_not_called_removed(root: Path, capsys, monkeypatch):
    def refuse(path: Path, **how: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr("kitae.precompile.prune.remove_folder", refuse)
    assert kitae("cache", "clear-failed", "--yes") == 9
    output = capsys.readouterr()
    assert "cannot be removed (Read-only file system)" in output.err
    assert "removed" not in output.out
    monkeypatch.setattr(Path, "unlink", refuse)
    assert kitae("cache", "clear-locks", "--yes") == 9
    assert ".lock cannot be removed (Read-only file system)" in capsys.readouterr().err


# ---- kitae's own


def test_kitaes_own_cache_is_listed_and_pruned_but_not_what_is_made_now(tmp_path: Path, monkeypatch, capsys):
    cache = tmp_path / "kitae"
    monkeypatch.setenv("KITAE_CACHE", str(cache))
    for path in ("data/aa/card.json", "data/bb/card.json", "data/.tmp-cc-999999999-0123abcd/x"):
        (cache / path).parent.mkdir(parents=True)
        (cache / path).write_text("{}")
    (cache / "models/smol-1/model").mkdir(parents=True)
    found = {one["kind"]: one["states"] for one in facts(capsys, "--kind", "data", "--kind", "models")}
    assert found == {"data": {"half-written": 1, "done": 2}, "models": {"done": 1}}
    for folder in (cache / "data").iterdir():
        age(folder)
    assert kitae("cache", "prune", "--older-than", "1d", "--yes") == 0  # of compilers alone
    assert len(list((cache / "data").iterdir())) == 3
    with (cache / "data/.bb.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert kitae("cache", "prune", "--kind", "data", "--older-than", "1d", "--yes") == 0
    assert sorted(path.name for path in (cache / "data").iterdir()) == [".bb.lock", "bb"]


# ---- carried


def test_a_cache_is_carried_to_another_machine(root: Path, tmp_path: Path, capsys):
    assert kitae("cache", "export", tmp_path / "cache.tar") == 0
    output = capsys.readouterr().out
    assert output.count("left out:") == 4
    assert "1 entries" in output
    there = tmp_path / "there"
    for came in ("1 entries", "0 entries"):
        assert kitae("cache", "import", tmp_path / "cache.tar", "--root", there) == 0
        assert came in capsys.readouterr().out
    assert left(there) == {"done"}


def test_an_import_onto_a_shared_file_system_is_refused(root: Path, tmp_path: Path, capsys, monkeypatch):
    kitae("cache", "export", tmp_path / "cache.tar")
    (tmp_path / "mounts").write_text(f"server:/x {tmp_path}/there nfs4 rw 0 0\n")
    monkeypatch.setattr("kitae.storage.mounts.MOUNTS", tmp_path / "mounts")
    assert kitae("cache", "import", tmp_path / "cache.tar", "--root", tmp_path / "there") == 9
    assert "which other machines see, too" in capsys.readouterr().err
    assert not (tmp_path / "there").exists()


def test_a_kind_that_is_no_compilers_cannot_be_exported(root: Path, tmp_path: Path, capsys):
    assert kitae("cache", "export", tmp_path / "x.tar", "--kind", "data") == 2
    assert "a compiler's cache is one of neuron, torchneuron, xla" in capsys.readouterr().err


def test_nothing_makes_no_archive(root: Path, tmp_path: Path, capsys):
    assert kitae("cache", "export", tmp_path / "x.tar", "--kind", "neuron", "--root", tmp_path / "none") == 9
    assert "is done (nothing is there): there is nothing to export" in capsys.readouterr().err
    assert not (tmp_path / "x.tar").exists()
