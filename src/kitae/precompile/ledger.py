"""The graphs of a run: which there are, fed with what shapes, and whether a new one comes when none should.

A training has few graphs, by name: the micro-batches of an update (train/first, train/middle, train/last, or
train/only where it has one), update, evaluate, and what stands between them. Each of them is compiled once in
a phase; compiling a second one under the same name would stop a chip for minutes, and comes of a shape or a
constant that changes. That is what a ledger finds, and names.

On a backend that collects nothing, shapes are noted all the same: they are what another machine has to
compile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from kitae.backend.base import Backend, Ended, Tensors
from kitae.errors import PrecompileError
from kitae.storage.files import replace_file

FORMAT = 1
FILE_NAME = "graphs.json"
NewGraphs = Literal["error", "warn"]


@dataclass(frozen=True)
class Input:
    """One tensor that a graph is fed with."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} {list(self.shape)} {self.dtype}"


@dataclass
class Entry:
    """A graph."""

    phase: str
    """Name of the boundary that ends it, such as train/first."""
    key: str | None
    """Which graph it is, for the compiler; None where nothing is collected."""
    inputs: tuple[Input, ...]
    first_step: int
    """Optimizer updates that were done when it was first used."""
    uses: int = 0
    stretch: str | None = None
    """The phase of the recipe, where it has phases."""
    artefact: str | None = None
    """What the compiler's cache calls it, where that is known."""

    def record(self) -> dict[str, Any]:
        """As it stands in `graphs.json`."""
        found = {**asdict(self), "inputs": [asdict(one) for one in self.inputs]}
        return {name: value for name, value in found.items() if value is not None or name == "key"}


@dataclass
class Ledger:
    """Takes a backend's boundaries; `step` and `stretch` say where the training is."""

    backend: Backend
    new_graphs: NewGraphs = "error"
    report: Callable[[str], None] = print
    log: Callable[[str], None] = lambda line: None
    """Takes a line for every new graph, `kitae-graph: <phase> <key>`."""
    step: int = 0
    entries: list[Entry] = field(default_factory=list)
    stretch: str | None = None
    _known: dict[tuple[Any, ...], Entry] = field(default_factory=dict)
    _watching: bool = True
    _written: int = 0

    def enter(self, stretch: str | None) -> None:
        """Begin a phase of the recipe: it may bring graphs of its own."""
        self.stretch = stretch

    def ended(self, graph: str, inputs: Tensors, ended: Ended) -> None:
        """Note a graph. Raises `PrecompileError`, or warns, when it is new where none should be."""
        if not self._watching:
            return
        identity = (self.stretch, graph, ended.key, *((n, t.shape, t.dtype) for n, t in inputs.items()))
        entry = self._known.get(identity)
        if entry is None:
            entry = self._new(identity, graph, inputs, ended)
        elif ended.compiled:
            self._object(f"{graph}: {_COMPILED_AGAIN}")
        entry.uses += 1
        if ended.between and self._is_warm(graph):
            self._object(f"{ended.between} programs {_BETWEEN} {graph}")

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within it nothing is noted: for work that has to find out what went wrong."""
        before, self._watching = self._watching, False
        try:
            yield
        finally:
            self._watching = before

    @property
    def keys(self) -> list[str]:
        """The different graphs, in the order in which they came."""
        return list(dict.fromkeys(one.key for one in self.entries if one.key is not None))

    def write(self, folder: Path, *, last: bool = False) -> None:
        """Write `graphs.json` into a run's folder, when there is a new graph or it is the last time."""
        if self._written == len(self.entries) and not last:
            return
        content = {
            "format": FORMAT,
            "backend": self.backend.name,
            "graphs": [entry.record() for entry in self.entries],
        }
        replace_file(folder / FILE_NAME, (json.dumps(content, indent=1) + "\n").encode())
        self._written = len(self.entries)

    def _new(self, identity: tuple[Any, ...], graph: str, inputs: Tensors, ended: Ended) -> Entry:
        given = tuple(
            Input(n, tuple(t.shape), str(t.dtype).removeprefix("torch.")) for n, t in inputs.items()
        )
        same = next((one.artefact for one in self.entries if one.key == ended.key), None)
        entry = Entry(graph, ended.key, given, self.step, 0, self.stretch, ended.artefact or same)
        before = [one for one in self.entries if (one.phase, one.stretch) == (graph, self.stretch)]
        self._known[identity] = entry
        self.entries.append(entry)
        self.log(f"kitae-graph: {graph} {entry.key}")
        if before and self.backend.lazy:
            self._object(f"{graph}: {difference(before, entry)}")
        return entry

    def _is_warm(self, graph: str) -> bool:
        """Whether a graph of this name was used before in this phase."""
        return any(
            one.phase == graph and one.stretch == self.stretch and one.uses > 1 for one in self.entries
        )

    def _object(self, what: str) -> None:
        message = f"after step {self.step}: a new graph, which costs a compilation in the training; {what}"
        if self.new_graphs == "error":
            raise PrecompileError(f"{message}; {_WAY_OUT}")
        self.report(f"warning: {message}")


_COMPILED_AGAIN = (
    "its shapes and results are those of before, but tensors that it does not name were computed, too"
)
_BETWEEN = "were compiled for values that were read before the end of"
_WAY_OUT = (
    "this is a defect of kitae, or of an option that needs another shape each time; what was saved stays: "
    "target.new_graphs: warn lets the training go on with it"
)


def difference(before: Sequence[Entry], new: Entry) -> str:
    """In what a graph differs from the nearest of those of the same name."""
    nearest = min(before, key=lambda one: len(_changes(one, new)))
    changes = _changes(nearest, new)
    if changes:
        return f"against that of step {nearest.first_step}: {', '.join(changes)}"
    return (
        f"all shapes are those of step {nearest.first_step}, so a number that is written into the graph has "
        "changed, or an operation is another one"
    )


def _changes(old: Entry, new: Entry) -> list[str]:
    had, has = ({one.name: one for one in entry.inputs} for entry in (old, new))
    gone = [f"{name} is not there" for name in had if name not in has]
    came = [f"{one} came in" for name, one in has.items() if name not in had]
    return [
        *gone,
        *came,
        *(_change(had[name], one) for name, one in has.items() if had.get(name, one) != one),
    ]


def _change(old: Input, new: Input) -> str:
    return f"{new.name} was {list(old.shape)} {old.dtype} and is {list(new.shape)} {new.dtype}"
