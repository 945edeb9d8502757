"""Programs of ranks whose peers are not there: what they hold is what mesh, layout and recipe predict.

Two processes trace: one every case for its first and its last rank, another one some of them again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from traced_cases import CASES

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla
LAST = {
    name: parallel["data_parallel_size"] * parallel["tensor_parallel_size"] - 1
    for name, (_, parallel, _) in CASES.items()
}
"""Number of each case's last rank."""
OWN_PROGRAMS = {"dp4-zero1-uneven": {"begin", "update"}, "dp2-tp2-autocast": {"begin", "update"}}
"""Cases in which a rank has graphs that others do not have."""
AGAIN = ("tp4", "dp4-zero1", "bert-tp2")


def start(wanted):
    command = [sys.executable, str(Path(__file__).with_name("traced_cases.py")), *wanted]
    environment = {**os.environ, "PJRT_DEVICE": "CPU", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def traced():
    """By process: what it traced, and what it counted."""
    everything = [f"{name}:{rank}" for name, last in LAST.items() for rank in sorted({0, last})]
    processes = [start(everything), start([f"{name}:0" for name in AGAIN])]
    said = [process.communicate(timeout=400)[0] for process in processes]
    return [json.loads(one.splitlines()[-1]) for one in said]


@pytest.mark.parametrize("name", CASES)
def test_an_update_holds_what_is_predicted(traced, name):
    """Kind, count, replica groups of the whole world, and bytes, on the first and on the last rank."""
    for rank in (0, LAST[name]):
        found = traced[0]["facts"][f"{name}:{rank}"]
        assert found["update"] == found["expected"]
    assert bool(found["update"]) == (name != "alone")


@pytest.mark.parametrize("name", CASES)
def test_a_micro_batch_holds_what_is_predicted(traced, name):
    """Every program of a micro-batch but the last, whose gradients travel."""
    found = traced[0]["facts"][f"{name}:0"]
    graphs = {one["graph"]: one["collectives"] for one in found["programs"]}
    of_update = [one for one in graphs if one.startswith("train/")]
    assert of_update in (["train/only"], ["train/first", "train/middle", "train/last"])
    assert [*graphs] == ["begin", *of_update, "update"]
    for graph in of_update[:-1]:
        assert graphs[graph] == found["micro_batch"]
    assert not graphs["begin"]


def test_all_groups_are_of_the_whole_world(traced):
    for name, last in LAST.items():
        for one in traced[0]["facts"][f"{name}:0"]["update"]:
            assert sorted(rank for group in one["groups"] for rank in group) == [*range(last + 1)]


@pytest.mark.parametrize("name", [name for name in CASES if name not in OWN_PROGRAMS])
def test_all_ranks_have_the_same_programs(traced, name):
    first, last = (traced[0]["facts"][f"{name}:{rank}"]["programs"] for rank in (0, LAST[name]))
    assert first == last


@pytest.mark.parametrize(("name", "graphs"), OWN_PROGRAMS.items())
def test_where_programs_differ_they_exchange_the_same(traced, name, graphs):
    """Rows that are not equally many, and masters that are rows of the parameters, at a rank's own offset."""
    first, last = (traced[0]["facts"][f"{name}:{rank}"]["programs"] for rank in (0, LAST[name]))
    assert [one["collectives"] for one in first] == [one["collectives"] for one in last]
    differ = {one["graph"] for one, other in zip(first, last, strict=True) if one["key"] != other["key"]}
    assert differ == graphs


def test_another_process_has_the_same_keys(traced):
    for name in AGAIN:
        assert traced[1]["facts"][f"{name}:0"] == traced[0]["facts"][f"{name}:0"]


def test_nothing_is_compiled_run_or_read_back(traced):
    for one in traced:
        did = {
            "CompileTime",
            "ExecuteTime",
            "ExecuteComputation",
            "UncachedCompile",
            "TransferFromDeviceTime",
        }
        assert not did & {*one["counted"]}
        assert "LazyTracing" in one["counted"]
        assert not [name for name in one["counted"] if name.startswith("aten::")]  # computed on the host
