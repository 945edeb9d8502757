"""In what two keys differ: one flag, a shape, a type, a constant, the compiler (row 52)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuron_cache import FLAGS, VERSION, write_entry

from kitae.errors import PrecompileError
from kitae.precompile.cache_neuron import entries
from kitae.precompile.module_file import Shape, numbers, parse_module, read_module
from kitae.precompile.why_miss import Side, differences, side_of

GRAPHS = Path(__file__).parents[1] / "fixtures/graphs"


def content(name: str) -> bytes:
    return (GRAPHS / f"{name}.pb").read_bytes()


def said(one: Path | str, other: Path | str) -> list[str]:
    found, _ = differences(side_of(str(one)), side_of(str(other)))
    return [str(difference) for difference in found]


def two(tmp_path: Path, graph: str, *, flags: tuple[str, ...] = FLAGS, version: str = VERSION) -> list[str]:
    """What is said of the base graph's entry, and of another one."""
    one = write_entry(tmp_path, "MODULE_111+aaaa", graph=content("base"))
    other = write_entry(tmp_path, "MODULE_222+bbbb", graph=content(graph), flags=flags, version=version)
    return said(one, other)


def test_one_flag_is_named(tmp_path: Path):
    flags = ("--model-type=transformer", "--auto-cast=matmult", "--target=trn1")
    assert two(tmp_path, "base", flags=flags) == ["flag: --auto-cast: none is matmult"]


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ((*FLAGS, "-O1"), "flag: -O: not given is 1"),
        (FLAGS[:-1], "flag: --target: trn1 is not given"),
        ((*FLAGS, "--enable-saturate-infinity"), "flag: --enable-saturate-infinity: not given is given"),
        (
            ("--model-type", "transformer", "--auto-cast=all", "--target=trn1"),
            "flag: --auto-cast: none is all",
        ),
    ],
)
def test_flags_in_each_form(tmp_path: Path, flags: tuple[str, ...], text: str):
    assert two(tmp_path, "base", flags=flags) == [text]


def test_the_order_of_flags_alone_is_told(tmp_path: Path):
    (text,) = two(tmp_path, "base", flags=FLAGS[::-1])
    assert text.startswith("flag: the same flags in another order: --model-type=transformer")


def test_the_compiler_is_named(tmp_path: Path):
    assert two(tmp_path, "base", version="neuronxcc-2.16.372.0") == [
        f"compiler: {VERSION} is neuronxcc-2.16.372.0"
    ]


def test_a_shape_and_a_type_are_named_before_what_follows_from_them(tmp_path: Path):
    assert two(tmp_path, "rows")[0] == "input: parameter 0: f32[4,8] is f32[6,8]"
    assert two(tmp_path, "bf16")[0] == "input: parameter 0: f32[4,8] is bf16[4,8]"


def test_a_constant_of_the_graph_is_named_with_its_values(tmp_path: Path):
    """What makes a learning rate that is written into the graph compile again at each step."""
    assert two(tmp_path, "constant") == ["constant: 2 is 3 (of f32[])"]


def test_another_operation_is_named(tmp_path: Path):
    found = two(tmp_path, "operation")
    assert "operation: 1 times maximum are 0" in found
    assert "operation: 0 times tanh are 1" in found


def test_what_cannot_be_compared_is_said(tmp_path: Path):
    one = write_entry(tmp_path, "MODULE_111+aaaa", graph=b"\xff\xff broken")
    other = write_entry(tmp_path, "MODULE_222+aaaa", graph=content("base"))
    (other / "compile_flags.json").unlink()
    found, notes = differences(side_of(str(one)), side_of(str(other)))
    assert found == []
    assert any("cannot be read as a graph of XLA" in note for note in notes)
    assert any(note.startswith("flags are not recorded on both sides") for note in notes)
    assert notes[-1] == "no difference was found in what could be compared"


def test_the_same_twice(tmp_path: Path):
    one = write_entry(tmp_path, "MODULE_111+aaaa", graph=content("base"))
    assert differences(side_of(str(one)), side_of(str(one))) == ([], ["the keys are the same"])


# ---- what a person may name


@pytest.fixture
def run(tmp_path: Path) -> Path:
    graphs = [
        {"phase": phase, "key": key, "inputs": [{"name": "ids", "shape": shape, "dtype": "int64"}]}
        for phase, key, shape in (("train/first", "aa11", [2, 32]), ("evaluate", "bb22", [1, 32]))
    ]
    (tmp_path / "graphs.json").write_text(json.dumps({"format": 1, "graphs": graphs}))
    return tmp_path


def test_two_graphs_of_a_run_by_phase_or_key(run: Path):
    text = "input: ids: int64[2, 32] is int64[1, 32]"
    assert said(f"{run}:train/first", f"{run}:bb22") == [text]
    assert said(f"{run}/graphs.json:aa11", f"{run}:evaluate") == [text]


def test_a_key_of_a_cache_by_its_beginning(tmp_path: Path):
    write_entry(tmp_path, "MODULE_182ac3459c+39f12043", graph=content("base"))
    write_entry(tmp_path, "MODULE_1899999999+39f12043", graph=content("rows"))
    there = list(entries(tmp_path))
    assert side_of("182a", there).label == f"{VERSION}/MODULE_182ac3459c+39f12043"
    with pytest.raises(PrecompileError, match="2 entries begin so"):
        side_of("MODULE_18", there)


@pytest.mark.parametrize("name", ["nothing", "", "x:y"])
def test_what_is_nowhere_is_told_with_what_may_be_named(name: str):
    with pytest.raises(PrecompileError, match="no folder of a cache, no graph in a file"):
        side_of(name)


def test_an_unknown_phase_is_told_with_those_that_there_are(run: Path):
    with pytest.raises(PrecompileError, match="no graph is called save; there are train/first, evaluate"):
        side_of(f"{run}:save")


# ---- the graph's file


def test_a_graph_of_torch_xla_is_read_without_it():
    module = read_module(GRAPHS / "base.pb")
    assert module.parameters == (Shape("f32", (4, 8)),)
    assert str(module.results) == "(f32[])"
    opcodes = [one.opcode for one in module.instructions]
    assert {"dot", "pad", "maximum", "reduce"} <= set(opcodes)
    constants = [numbers(one.constant) for one in module.instructions if one.opcode == "constant"]
    assert constants == [(24.0,), (2.0,), (0.0,), (0.0,)] or sorted(constants) == [
        (0.0,),
        (0.0,),
        (2.0,),
        (24.0,),
    ]


def test_the_older_message_around_a_graph_is_read():
    inner = content("base")
    length = bytes([len(inner) & 0x7F | 0x80, len(inner) >> 7])
    assert parse_module(b"\x0a" + length + inner) == read_module(GRAPHS / "base.pb")


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 900), st.binary(max_size=3))
def test_a_broken_file_is_an_error_never_a_hang(cut: int, tail: bytes):
    try:
        parse_module(content("base")[:cut] + tail)
    except (ValueError, IndexError):
        return


def test_sides_need_not_know_anything():
    _, notes = differences(Side("a"), Side("b"))
    assert notes[-1] == "no difference was found in what could be compared"
