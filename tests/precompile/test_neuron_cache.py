"""Neuron's cache folder: states, sizes, locks, and the older names of files (rows 13, 43, 52; T51)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from neuron_cache import ERROR, FLAGS, VERSION, write_entry

from kitae.precompile.cache_files import torchneuron_entries, torchneuron_root, xla_entries
from kitae.precompile.cache_neuron import (
    DEFAULT_ROOT,
    entries,
    first_error,
    flags_of,
    graph_file,
    read_entry,
    root_of,
)
from kitae.precompile.entries import STATES, Entry
from kitae.precompile.lock_holders import Holders

NAME = "MODULE_182ac3459c92e88f4e9d+39f12043"


def judged(folder: Path, commands: dict[int, str] | None = None) -> Entry:
    return read_entry(folder, Holders(folder, lambda: commands or {}))


@pytest.mark.parametrize("state", STATES)
def test_each_state_is_told_from_the_files(tmp_path: Path, state: str):
    entry = judged(write_entry(tmp_path, NAME, state))
    assert (entry.state, entry.name, entry.version) == (state, NAME, VERSION)
    assert (entry.graph, entry.flags) == ("MODULE_182ac3459c92e88f4e9d", "39f12043")


def test_size_is_that_of_all_files(tmp_path: Path):
    folder = write_entry(tmp_path, NAME, neff=b"x" * 1000)
    assert judged(folder).size_bytes == 1000 + len(b"graph") + (folder / "compile_flags.json").stat().st_size


def test_an_artefact_that_is_not_whole_is_never_done(tmp_path: Path):
    """T51: a neff without its mark, or an empty one with it, is half-written."""
    assert judged(write_entry(tmp_path, NAME, "half-written")).state == "half-written"
    assert judged(write_entry(tmp_path, NAME, "done", neff=b"")).state == "half-written"


def test_a_folder_of_an_artefacts_name_is_none(tmp_path: Path):
    folder = write_entry(tmp_path, "MODULE_1+a", "empty")
    (folder / "model.neff").mkdir()
    (folder / "model.done").touch()
    assert read_entry(folder).state == "half-written"


def test_a_poisoned_entry_says_the_compilers_first_error(tmp_path: Path):
    entry = judged(write_entry(tmp_path, NAME, "failed"))
    assert entry.why == ("[NLA001]  Unhandled exception with message: === BIR verification failed ===")


def test_a_log_of_broken_bytes_is_read_all_the_same(tmp_path: Path):
    folder = write_entry(tmp_path, NAME, "failed")
    (folder / "model.log").write_bytes(b"\xff\xffhello\n[XTP002] Too many \xff instructions\n")
    assert judged(folder).why == "[XTP002] Too many \ufffd instructions"


def test_a_log_beside_an_artefact_is_no_failure(tmp_path: Path):
    folder = write_entry(tmp_path, NAME)
    (folder / "model.log").write_text(ERROR)
    assert judged(folder).state == "done"


def test_a_lock_is_held_by_the_compiler_whose_command_names_the_graph(tmp_path: Path):
    """Row 43: the holder is named."""
    folder = write_entry(tmp_path, NAME, "locked")
    (lock,) = judged(folder, {77: f"neuronx-cc compile /tmp/model.{NAME}.hlo_module.pb"}).locks
    assert (lock.holder, lock.process) == ("alive", 77)


def test_a_lock_is_left_behind_when_no_compiler_runs_and_unknown_beside_another(tmp_path: Path):
    folder = write_entry(tmp_path, NAME, "locked")
    os.utime(folder / "model.hlo_module.pb.lock", (1000, 1000))
    (lock,) = judged(folder).locks
    assert lock.holder == "gone"
    assert lock.age_s > 1e8
    (lock,) = judged(folder, {78: "neuron_parallel_compile --command compile"}).locks
    assert lock.holder == "unknown"


def test_a_lock_that_somebody_holds_is_held(tmp_path: Path):
    folder = write_entry(tmp_path, NAME, "locked")
    with (folder / "model.hlo_module.pb.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (lock,) = judged(folder).locks
        assert (lock.holder, lock.process) == ("alive", None)


def test_a_failed_graph_that_is_compiled_again_is_locked_not_failed(tmp_path: Path):
    folder = write_entry(tmp_path, NAME, "failed")
    (folder / "model.hlo_module.pb.lock").touch()
    assert judged(folder).state == "failed"
    assert judged(folder, {77: f"neuronx-cc model.{NAME}"}).state == "locked"


def test_all_compilers_are_listed_and_nothing_else(tmp_path: Path):
    write_entry(tmp_path, NAME)
    write_entry(tmp_path, NAME, "failed", version="neuronxcc-2.16.372.0+4a9b2326")
    (tmp_path / VERSION / "notes.txt").touch()
    (tmp_path / "lost+found").mkdir()
    assert [(entry.version, entry.state) for entry in entries(tmp_path)] == [
        ("neuronxcc-2.16.372.0+4a9b2326", "failed"),
        (VERSION, "done"),
    ]
    assert list(entries(tmp_path / "none")) == []


def test_older_files_are_read(tmp_path: Path):
    folder = write_entry(tmp_path, NAME)
    (folder / "model.hlo_module.pb").rename(folder / "model.hlo.pb")
    (folder / "compile_flags.json").unlink()
    (folder / "compile_flags.txt").write_text("--model-type=transformer --auto-cast=none")
    assert flags_of(folder) == ("--model-type=transformer", "--auto-cast=none")
    assert graph_file(folder) == folder / "model.hlo.pb"


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ('["--a=1", "-O1"]', ("--a=1", "-O1")),
        ("\"--a=1 --b='x y'\"", ("--a=1", "--b=x y")),
        ("--a='unclosed", ("--a='unclosed",)),
        ('{"a": 1}', None),
    ],
)
def test_flags_of_each_form(tmp_path: Path, text: str, flags: tuple[str, ...] | None):
    folder = write_entry(tmp_path, NAME)
    assert flags_of(folder) == FLAGS
    (folder / "compile_flags.json").write_text(text)
    assert flags_of(folder) == flags


def test_the_compilers_flag_wins_over_the_variable():
    url = {"NEURON_COMPILE_CACHE_URL": "s3://bucket/x"}
    assert root_of({}) == DEFAULT_ROOT
    assert root_of(url) == "s3://bucket/x"
    assert root_of({**url, "NEURON_CC_FLAGS": "--model-type transformer --cache_dir=/home/x"}) == "/home/x"
    assert root_of({"NEURON_CC_FLAGS": "--cache_dir '/home/my x' -O1"}) == "/home/my x"


def test_the_first_error_is_the_line_that_looks_so_else_the_first():
    assert (
        first_error("\n.....\nfine\nneuronx-cc: error: no space\n[X] later error")
        == "neuronx-cc: error: no space"
    )
    assert first_error("one\ntwo") == "one"
    assert first_error("\n") == ""
    assert len(first_error("x" * 999)) == 200


# ---- caches of single files


def test_torchneurons_cache_is_read_by_shards(tmp_path: Path):
    folder = tmp_path / "ab" / "cd"
    folder.mkdir(parents=True)
    (folder / "abcd1234.neff").write_bytes(b"x" * 10)
    (folder / "abcd9999.neff").touch()
    (folder / "tmpxyz.tmp").write_bytes(b"x")
    (folder / "readme").touch()
    found = {entry.name: (entry.state, entry.size_bytes) for entry in torchneuron_entries(tmp_path)}
    assert found == {
        "abcd1234": ("done", 10),
        "abcd9999": ("half-written", 0),
        "tmpxyz.tmp": ("half-written", 1),
    }
    assert torchneuron_root({"TORCH_NEURONX_NEFF_CACHE_DIR": "/x"}) == "/x"


def test_xlas_cache_is_one_file_a_graph(tmp_path: Path):
    (tmp_path / "130777775622993059884679696902630280884").write_bytes(b"x" * 5)
    (tmp_path / "kitae-graphs.txt").touch()
    assert [(entry.name, entry.state) for entry in xla_entries(tmp_path)] == [
        ("130777775622993059884679696902630280884", "done")
    ]
