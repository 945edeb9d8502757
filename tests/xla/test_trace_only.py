"""`kitae precompile --trace-only`: Llama 3.1 8B as four trn1.32xlarge train it, without data or peers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla
ROOT = Path(__file__).parents[2]
EIGHT = ROOT / "recipes" / "llama3.1-8b-cpt-trn1.yaml"
LIMIT_BYTES = 4 * 10**9


def start(recipe, folder, *options):
    command = [sys.executable, "-m", "kitae", "precompile", str(recipe), "--trace-only", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        [*command, "--set", f"runs={folder}"], env=environment, stdout=-1, stderr=-1, text=True, cwd=folder
    )


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """What is said of the first and of the last rank."""
    folders = [tmp_path_factory.mktemp(name) for name in ("first", "last")]
    started = [start(EIGHT, folders[0], "--json"), start(EIGHT, folders[1], "--rank", "127", "--json")]
    said = [process.communicate(timeout=300) for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    return [json.loads(out) for out, _ in said]


def test_all_of_an_update_is_traced(eight):
    (phase,) = eight[0]["phases"]
    uses = {one["graph"]: one["uses_per_update"] for one in phase["programs"]}
    assert uses == {"begin": 0, "train/first": 1, "train/middle": 254, "train/last": 1, "update": 1}
    assert len({one["key"] for one in phase["programs"]}) == 5
    assert eight[0]["world"] == {"size": 128, "tensor_parallel": 32, "data_parallel": 4, "rank": 0}


def test_what_it_exchanges_is_predicted(eight):
    """Among them 33,280 reduce-scatters of states: in 256 micro-batches 4 a layer, and 2 at the ends."""
    (phase,) = eight[0]["phases"]
    assert phase["as_predicted"]
    states = [one for one in phase["update"] if one["kind"] == "reduce_scatter" and len(one["groups"]) == 4]
    assert [(one["count"], one["bytes_in"]) for one in states] == [(256 * (4 * 32 + 2), 8192 * 4096 * 2)]


def test_all_ranks_have_the_same_programs(eight):
    first, last = (one["phases"][0]["programs"] for one in eight)
    assert first == last


def test_it_takes_little_memory(eight):
    """No weight, no activation and no row of scores is ever there."""
    assert max(one["peak_bytes"] for one in eight) < LIMIT_BYTES


def test_graphs_are_written_as_a_run_writes_them(eight):
    from kitae.precompile.graphs import read_graphs

    graphs = read_graphs(Path(eight[0]["folder"]))
    programs = eight[0]["phases"][0]["programs"]
    assert [(one.phase, one.key) for one in graphs] == [(one["graph"], one["key"]) for one in programs]
    inputs = {one.name: one.shape for one in graphs[1].inputs}
    assert inputs["input_ids"] == (1, 8192)


def test_a_rank_that_is_not_there_is_refused(tmp_path):
    out, err = start(EIGHT, tmp_path, "--rank", "128").communicate()
    assert not out
    assert "--rank 128: this training has ranks 0 to 127" in err
