"""The ledger of graphs, told of boundaries as a backend tells of them (T56)."""

from __future__ import annotations

import json

import pytest
import torch

from kitae.backend.base import Ended
from kitae.backend.cpu import CpuBackend
from kitae.errors import PrecompileError
from kitae.precompile.ledger import Ledger


class Lazy(CpuBackend):
    """A CPU that says that it collects graphs."""

    name = "lazy"
    lazy = True


def rows(count, length=16, **more):
    ids = torch.zeros(count, length, dtype=torch.int64)
    return {"input_ids": ids, "labels": ids, **more}


def ledger(**options):
    made = Ledger(Lazy(), **options)
    made.ended("train/first", rows(2), Ended("a", compiled=1))
    made.ended("update", {}, Ended("b", compiled=1))
    return made


def test_a_graph_is_one_entry_however_often_it_is_used(tmp_path):
    made = ledger()
    for step in (1, 2):
        made.step = step
        made.ended("train/first", rows(2), Ended("a"))
        made.ended("update", {}, Ended("b"))
    assert made.keys == ["a", "b"]
    made.write(tmp_path)
    found = json.loads((tmp_path / "graphs.json").read_text())
    assert found == {
        "format": 1,
        "backend": "lazy",
        "graphs": [
            {
                "phase": "train/first",
                "key": "a",
                "inputs": [
                    {"name": "input_ids", "shape": [2, 16], "dtype": "int64"},
                    {"name": "labels", "shape": [2, 16], "dtype": "int64"},
                ],
                "first_step": 0,
                "uses": 3,
            },
            {"phase": "update", "key": "b", "inputs": [], "first_step": 0, "uses": 3},
        ],
    }


def test_it_is_written_when_something_is_new_and_at_the_end(tmp_path):
    made = ledger()
    made.write(tmp_path)
    made.ended("update", {}, Ended("b"))
    made.write(tmp_path)
    assert json.loads((tmp_path / "graphs.json").read_text())["graphs"][1]["uses"] == 1
    made.write(tmp_path, last=True)
    assert json.loads((tmp_path / "graphs.json").read_text())["graphs"][1]["uses"] == 2


def test_a_shape_that_changes_is_named():
    made = ledger()
    made.step = 7
    with pytest.raises(PrecompileError) as caught:
        made.ended("train/first", rows(3), Ended("c", compiled=1))
    assert str(caught.value).startswith(
        "after step 7: a new graph, which costs a compilation in the training; train/first: against that of "
        "step 0: input_ids was [2, 16] int64 and is [3, 16] int64, labels was [2, 16] int64 and is [3, 16]"
    )
    assert "target.new_graphs: warn" in str(caught.value)
    assert caught.value.exit_code == 9


def test_the_nearest_of_several_is_compared_with():
    told = []
    made = ledger(new_graphs="warn", report=told.append)
    made.step = 3
    made.ended("train/first", rows(2, 32), Ended("c"))
    made.step = 5
    made.ended("train/first", rows(2, 32, extra=torch.zeros(1)), Ended("d"))
    assert told[1].endswith("train/first: against that of step 3: extra [1] float32 came in")
    made.ended("train/first", rows(2, 32), Ended("c"))
    assert len(told) == 2


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (Ended("z", compiled=1), "a number that is written into the graph has changed"),
        (Ended("a", compiled=1), "tensors that it does not name were computed, too"),
    ],
)
def test_another_graph_of_the_same_shapes(ended, words):
    made = ledger()
    with pytest.raises(PrecompileError, match=words):
        made.ended("train/first", rows(2), ended)


def test_values_that_are_read_in_between_count_from_the_second_use_on():
    """Before it, weights are brought and moments made."""
    made = Ledger(Lazy())
    made.ended("update", {}, Ended("b", compiled=1, between=5))
    with pytest.raises(
        PrecompileError, match="1 programs were compiled for values that were read before the"
    ):
        made.ended("update", {}, Ended("b", between=1))


def test_each_phase_of_the_recipe_has_its_own():
    made = ledger()
    made.enter("long rows")
    made.ended("train/first", rows(2, 64), Ended("c", compiled=1))
    assert [one.stretch for one in made.entries] == [None, None, "long rows"]
    with pytest.raises(PrecompileError):
        made.ended("train/first", rows(2, 32), Ended("d", compiled=1))


def test_where_nothing_is_compiled_shapes_are_noted_and_nothing_is_wrong():
    made = Ledger(CpuBackend())
    for count in (2, 3, 2):
        made.ended("evaluate", rows(count), Ended())
    assert [(one.key, one.inputs[0].shape, one.uses) for one in made.entries] == [
        (None, (2, 16), 2),
        (None, (3, 16), 1),
    ]
    assert made.keys == []


def test_every_new_graph_is_told_once_and_nothing_aside():
    lines = []
    made = Ledger(Lazy(), log=lines.append)
    with made.aside():
        made.ended("save", {}, Ended("x"))
    for _ in range(2):
        made.ended("train/last", rows(1), Ended("a"))
    assert lines == ["kitae-graph: train/last a"]


def test_graphs_that_are_the_same_have_one_artefact():
    made = Ledger(Lazy())
    made.ended("train/middle", rows(1), Ended("a", compiled=1, artefact="123"))
    made.ended("train/last", rows(1), Ended("a"))
    assert [one.record()["artefact"] for one in made.entries] == ["123", "123"]
