"""Several machines compile for themselves, each with a cache of its own; a starter starts them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from neuron_cache import VERSION, write_entry

import kitae
from kitae.errors import PrecompileError
from kitae.precompile.answer import Needed
from kitae.precompile.drive import Compiling
from kitae.stages.compile_node import Order, compile_on
from kitae.stages.job import Machines
from kitae.stages.precompiling import _answer, listing

STANDIN = Path(__file__).parents[1] / "support/standin_neuron"
NAMES = tuple(f"MODULE_{number}+aaaa" for number in ("111", "222"))


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    """Two machines on this one, with caches of their own that have what was collected."""
    starter = tmp_path / "starter"
    starter.write_text('#!/bin/sh\nfor node in a b; do SLURMD_NODENAME=$node "$@" & done\nwait\n')
    starter.chmod(0o755)
    source = Path(kitae.__file__).parents[1]
    for name, value in {
        "PYTHONPATH": os.pathsep.join([str(STANDIN), str(source)]),
        "PATH": f"{STANDIN}{os.pathsep}{os.environ['PATH']}",
        "STANDIN_NEURON_ROOT": str(tmp_path / "neuron"),
        "STANDIN_NEURON_PLAN": str(tmp_path / "plan.json"),
    }.items():
        monkeypatch.setenv(name, value)
    graphs = [{"name": name, "phase": "update", "fate": "ok"} for name in NAMES]
    (tmp_path / "plan.json").write_text(json.dumps({"graphs": graphs}))
    for node in "ab":
        for name in NAMES:
            write_entry(tmp_path / "neuron" / node, name, "empty")
    return Machines(("a", "b"), ("127.0.0.1", "127.0.0.1"), 1, (str(starter),))


def order(**changes: object) -> Order:
    values = {"backend": "cpu", "precision": "fp32", "kind": "neuron", "names": NAMES, "command": ("true",)}
    return Order(**{**values, "asked": Compiling(), **changes})  # type: ignore[arg-type]


def test_each_machine_compiles_and_answers(machines: Machines, tmp_path: Path):
    found = compile_on(machines, order(), tmp_path / "run")
    assert {name: {entry.state for entry in entries} for name, entries in found.items()} == {
        "a": {"done"},
        "b": {"done"},
    }
    assert (
        "b: precompile: 2 graphs, 0 of them are in the cache"
        in (tmp_path / "run/compile-nodes.log").read_text()
    )


def test_what_one_machine_lacks_is_told_with_its_name_and_nothing_is_compiled_by_a_look(machines, tmp_path):
    for name in NAMES:
        write_entry(tmp_path / "neuron/a", name)
    write_entry(tmp_path / "neuron/b", NAMES[0])
    write_entry(tmp_path / "neuron/b", NAMES[1], "failed")
    found = compile_on(machines, order(compiles=False), tmp_path / "run")
    said = _answer([Needed("update", name, VERSION) for name in NAMES], found)
    assert not said.complete
    assert f"update: {NAMES[1]}: failed (on b: [NLA001]" in listing(said)
    assert listing(said).startswith("1 of 2 graphs are not compiled (1 failed):")


def test_a_lock_that_was_left_on_one_machine_is_told(machines: Machines, tmp_path: Path):
    for name in NAMES:
        write_entry(tmp_path / "neuron/a", name)  # or its compiler, on this same machine, might hold the lock
    write_entry(tmp_path / "neuron/b", NAMES[1], "locked")
    with pytest.raises(PrecompileError, match=r"b: .*MODULE_222\+aaaa is locked for .*left behind"):
        compile_on(machines, order(), tmp_path / "run")


def test_a_machine_that_gives_no_answer_is_named(machines: Machines, tmp_path: Path):
    more = Machines(("a", "b", "c"), ("",) * 3, 1, machines.starter)
    with pytest.raises(PrecompileError, match=r"c gave no answer; what it said is in .*compile-nodes.log"):
        compile_on(more, order(compiles=False), tmp_path / "run")
