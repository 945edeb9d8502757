"""Complete, or what is missing and why (row 13; T56, T57), and how many are compiled at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from neuron_cache import VERSION, extracting, write_entry

from kitae.errors import PrecompileError
from kitae.precompile.answer import Answer, Needed, age_text, answer
from kitae.precompile.cache_neuron import entries
from kitae.precompile.compile_log import read_log
from kitae.precompile.graphs import Input, read_graphs
from kitae.precompile.jobs import jobs_for

FIRST, SECOND = "MODULE_111+aaaa", "MODULE_222+aaaa"


def of(root: Path, *needed: Needed) -> Answer:
    return answer(needed, entries(root))


def test_complete_only_when_every_key_has_an_artefact(tmp_path: Path):
    """T56: a log of PASS for all, with a module that was never compiled and a byte 0xFF in between."""
    names = (FIRST, SECOND, "MODULE_333+aaaa")
    write_entry(tmp_path, FIRST)
    write_entry(tmp_path, SECOND)
    write_entry(tmp_path, names[2], "empty")
    raw = [b"\xff\n", *(f"{extracting(tmp_path, name)}\nCompiler status PASS\n".encode() for name in names)]
    log = read_log(line for part in raw for line in part.splitlines(keepends=True))
    needed = [Needed(phase, module.name, module.version) for module, phase in log.needed.items()]
    said = of(tmp_path, *needed)
    assert log.passes == 3
    assert not said.complete
    assert [(one.name, one.reason) for one in said.missing] == [("MODULE_333+aaaa", "not compiled")]
    write_entry(tmp_path, names[2])
    assert of(tmp_path, *needed) == Answer(3, ())


@pytest.mark.parametrize(
    ("state", "reason"),
    [("failed", "failed"), ("locked", "locked"), ("half-written", "half-written"), ("empty", "not compiled")],
)
def test_what_is_there_instead_is_the_reason(tmp_path: Path, state: str, reason: str):
    write_entry(tmp_path, FIRST, state)
    (missing,) = of(tmp_path, Needed("update", FIRST, VERSION)).missing
    assert (missing.phase, missing.reason) == ("update", reason)


def test_a_failed_graph_is_told_with_the_compilers_error(tmp_path: Path):
    write_entry(tmp_path, FIRST, "failed")
    (missing,) = of(tmp_path, Needed("train/first", FIRST)).missing
    assert str(missing).startswith(f"train/first: {FIRST}: failed ([NLA001]  Unhandled exception")


def test_a_lock_that_was_left_is_told_with_the_way_out(tmp_path: Path):
    write_entry(tmp_path, FIRST, "locked")
    (missing,) = of(tmp_path, Needed("save", FIRST)).missing
    assert "left behind: no compiler runs here (kitae cache clear-locks)" in missing.detail


def test_another_compiler_and_other_flags_are_named(tmp_path: Path):
    write_entry(tmp_path, FIRST, version="neuronxcc-2.16.372.0+4a9b2326")
    write_entry(tmp_path, "MODULE_222+bbbb", flags=("-O1",))
    version, flags = of(tmp_path, Needed("a", FIRST, VERSION), Needed("b", SECOND, VERSION)).missing
    assert (version.reason, version.detail) == (
        "other compiler version",
        "there with neuronxcc-2.16.372.0+4a9b2326",
    )
    assert (flags.reason, flags.detail) == ("other flags", f"there as {VERSION}/MODULE_222+bbbb: -O1")


def test_a_graph_that_nobody_has_seen(tmp_path: Path):
    (missing,) = of(tmp_path, Needed("evaluate", FIRST)).missing
    assert str(missing) == f"evaluate: {FIRST}: never seen"


def test_a_graph_of_two_phases_is_told_once_by_the_first(tmp_path: Path):
    said = of(tmp_path, Needed("train/first", FIRST), Needed("train/last", FIRST))
    assert (said.needed, [one.phase for one in said.missing]) == (1, ["train/first"])


def test_needing_nothing_is_no_yes(tmp_path: Path):
    assert not of(tmp_path).complete


def test_ages():
    assert [age_text(one) for one in (7, 90, 7200, 200000)] == ["7 s", "2 min", "2 h", "2 d"]


# ---- graphs.json


def written(folder: Path, *graphs: dict) -> Path:
    (folder / "graphs.json").write_text(json.dumps({"format": 1, "backend": "xla", "graphs": list(graphs)}))
    return folder


def test_the_graphs_of_a_run_are_read(tmp_path: Path):
    """T57: evaluation and saving are phases of their own."""
    ids = {"name": "ids", "shape": [2, 32], "dtype": "int64"}
    given = {"phase": "train/first", "key": "5d8e", "inputs": [ids], "first_step": 0, "uses": 6}
    first, save = read_graphs(written(tmp_path, given, {"phase": "save", "key": None, "artefact": "1307"}))
    assert first.inputs == (Input("ids", (2, 32), "int64"),)
    assert str(first.inputs[0]) == "int64[2, 32]"
    assert (first.name, save.name, first.uses) == ("5d8e", "1307", 6)


def test_what_is_no_ledger_is_refused(tmp_path: Path):
    with pytest.raises(PrecompileError, match="is not there: a training writes it"):
        read_graphs(tmp_path)
    (tmp_path / "graphs.json").write_text('{"format": 1, "graphs": [{}]}')
    with pytest.raises(PrecompileError, match="cannot be read"):
        read_graphs(tmp_path)
    (tmp_path / "graphs.json").write_text('{"format": 9}')
    with pytest.raises(PrecompileError, match="format 9 is unknown"):
        read_graphs(tmp_path)


# ---- jobs

GIB = 1 << 30


@pytest.mark.parametrize(
    ("memory", "processors", "graphs", "jobs"),
    [
        (30 * GIB, 8, None, 3),  # trn1.2xlarge
        (480 * GIB, 128, None, 59),  # trn1.32xlarge
        (480 * GIB, 128, 9, 9),
        (480 * GIB, 16, None, 8),
        (11 * GIB, 8, None, 1),
        (1 * GIB, 1, 50, 1),
    ],
)
def test_as_many_at_a_time_as_memory_and_processors_bear(memory, processors, graphs, jobs):
    """min(graphs, processors // 2, (memory - 4 GiB) // 8 GiB), at least 1."""
    assert jobs_for(memory, processors, graphs) == jobs
