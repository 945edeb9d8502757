"""In what two keys of a compiler's cache differ: compiler, flags, inputs, constants, operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kitae.errors import PrecompileError
from kitae.precompile.cache_neuron import flags_of, graph_file, read_entry
from kitae.precompile.entries import Entry
from kitae.precompile.graphs import Graph, read_graphs
from kitae.precompile.module_file import Instruction, Module, numbers, read_module

_SHOWN = 5


@dataclass(frozen=True)
class Side:
    """One of the two: what is known of a graph. None: not known."""

    label: str
    version: str | None = None
    flags: tuple[str, ...] | None = None
    key: str = ""
    inputs: Mapping[str, str] | None = None
    """Type and shape of each input, by name or number."""
    module: Module | None = None
    unread: str = ""
    """Why the graph itself could not be read."""


@dataclass(frozen=True)
class Difference:
    """Something in which they differ."""

    what: str
    """compiler, flag, input, result, constant, operation."""
    text: str

    def __str__(self) -> str:
        return f"{self.what}: {self.text}"


def side_of(text: str, entries: Sequence[Entry] = ()) -> Side:
    """What a person named: a folder of a cache, a graph's file, RUN:PHASE-or-key, or a key in `entries`.

    Raises `PrecompileError` when there is nothing of that name.
    """
    path = Path(text)
    if path.is_dir() and graph_file(path) is not None:
        return _of_entry(read_entry(path))
    if path.is_file() and path.suffix == ".pb":
        return _with_module(Side(label=text), path)
    run, colon, name = text.rpartition(":")
    if colon and Path(run).exists():
        return _of_graph(run, name)
    found = [
        entry for entry in entries if text and entry.name.removeprefix("MODULE_").startswith(_bare(text))
    ]
    if len({entry.name for entry in found}) > 1:
        raise PrecompileError(
            f"{text}: {len(found)} entries begin so, such as {found[0].name}; write more of it"
        )
    if not found:
        raise PrecompileError(
            f"{text}: no folder of a cache, no graph in a file (.pb), no RUN:PHASE, and no key of the caches "
            "here (kitae cache list --entries shows them)"
        )
    return _of_entry(found[0])


def _bare(text: str) -> str:
    return text.rpartition("/")[2].removeprefix("MODULE_")


def _of_entry(entry: Entry) -> Side:
    side = Side(entry.label, entry.version or None, flags_of(entry.path), entry.graph)
    file = graph_file(entry.path)
    return side if file is None else _with_module(side, file)


def _with_module(side: Side, file: Path) -> Side:
    try:
        module = read_module(file)
    except PrecompileError as error:
        return Side(side.label, side.version, side.flags, side.key, unread=str(error))
    inputs = {f"parameter {number}": str(one) for number, one in enumerate(module.parameters)}
    return Side(side.label, side.version, side.flags, side.key, inputs, module)


def _of_graph(run: str, name: str) -> Side:
    graphs = read_graphs(Path(run))
    found = [one for one in graphs if name in (one.phase, one.key, one.artefact)]
    if not found:
        names = ", ".join(dict.fromkeys(one.phase for one in graphs))
        raise PrecompileError(f"{run}: no graph is called {name}; there are {names}")
    return _of_recorded(f"{run}:{name}", found[0])


def _of_recorded(label: str, graph: Graph) -> Side:
    inputs = {one.name or f"parameter {number}": str(one) for number, one in enumerate(graph.inputs)}
    return Side(label, key=graph.key, inputs=inputs)


def differences(one: Side, other: Side) -> tuple[list[Difference], list[str]]:
    """In what they differ, most telling first; and notes on what could not be compared."""
    found = [*_compilers(one, other), *_flag_changes(one, other), *_inputs(one, other)]
    notes = [f"{side.label}: {side.unread}" for side in (one, other) if side.unread]
    if one.flags is None or other.flags is None:
        notes.append("flags are not recorded on both sides, and were not compared")
    if one.module is None or other.module is None:
        notes.append(
            "operations could not be compared: the graph is not there, or cannot be read, on both sides"
        )
    else:
        found += _operations(one.module, other.module)
    if not found:
        same = one.key == other.key and bool(one.key)
        notes.append("the keys are the same" if same else "no difference was found in what could be compared")
    return found, notes


def _compilers(one: Side, other: Side) -> Iterator[Difference]:
    if one.version is not None and other.version is not None and one.version != other.version:
        yield Difference("compiler", f"{one.version} is {other.version}")


def _flag_changes(one: Side, other: Side) -> Iterator[Difference]:
    if one.flags is None or other.flags is None:
        return
    had, has = _by_name(one.flags), _by_name(other.flags)
    for name in dict.fromkeys([*had, *has]):
        old, new = had.get(name), has.get(name)
        if old != new:
            yield Difference("flag", f"{name}: {_shown(old)} is {_shown(new)}")
    if had == has and one.flags != other.flags:
        yield Difference(
            "flag", f"the same flags in another order: {' '.join(one.flags)} is {' '.join(other.flags)}"
        )


def _by_name(flags: Sequence[str]) -> dict[str, str]:
    """Flags by name; a value may stand behind `=` or be the next word; -O2 is called -O."""
    found: dict[str, str] = {}
    name = ""
    for word in flags:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            found[name] = value
        elif word.startswith("-") and len(word) > 2:
            name = word[:2]
            found[name] = word[2:]
        else:
            found[name or word] = word
    return found


def _shown(value: str | None) -> str:
    return "not given" if value is None else value or "given"


def _inputs(one: Side, other: Side) -> Iterator[Difference]:
    if one.inputs is None or other.inputs is None:
        return
    changed = [
        f"{name}: {one.inputs.get(name, 'not there')} is {other.inputs.get(name, 'not there')}"
        for name in dict.fromkeys([*one.inputs, *other.inputs])
        if one.inputs.get(name) != other.inputs.get(name)
    ]
    for text in changed[:_SHOWN]:
        yield Difference("input", text)
    if len(changed) > _SHOWN:
        yield Difference("input", f"and {len(changed) - _SHOWN} more")


def _operations(one: Module, other: Module) -> Iterator[Difference]:
    if str(one.results) != str(other.results):
        yield Difference("result", f"{one.results} is {other.results}")
    if len(one.instructions) != len(other.instructions):
        yield from _counts(one, other)
        return
    changed = [pair for pair in zip(one.instructions, other.instructions, strict=True) if pair[0] != pair[1]]
    for old, new in changed[:_SHOWN]:
        yield _change(old, new)
    if len(changed) > _SHOWN:
        yield Difference(
            "operation", f"and {len(changed) - _SHOWN} more of {len(one.instructions)} instructions"
        )


def _change(old: Instruction, new: Instruction) -> Difference:
    if (old.opcode, old.shape) == (new.opcode, new.shape):
        return Difference("constant", f"{_constant(old)} is {_constant(new)} (of {old.shape})")
    return Difference("operation", f"{old.opcode} {old.shape} is {new.opcode} {new.shape}")


def _constant(one: Instruction) -> str:
    values = numbers(one.constant)
    return ", ".join(f"{value:g}" for value in values) if values else "another value"


def _counts(one: Module, other: Module) -> Iterator[Difference]:
    """How often each operation is there, where their numbers differ."""
    had, has = (Counter(line.opcode for line in module.instructions) for module in (one, other))
    changed = [name for name in dict.fromkeys([*had, *has]) if had[name] != has[name]]
    for name in changed[:_SHOWN]:
        yield Difference("operation", f"{had[name]} times {name} are {has[name]}")
    if len(changed) > _SHOWN:
        yield Difference("operation", f"and {len(changed) - _SHOWN} more kinds differ in number")
