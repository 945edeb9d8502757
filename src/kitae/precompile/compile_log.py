"""What a compiler and neuron_parallel_compile print, read line by line, whatever bytes are in it.

A line of progress may stand before another on the same line, a byte may be no UTF-8, and several processes
write between each other; so nothing is taken from a line but the graph that it names and what is said of it.
"Compiler status PASS" names none and proves nothing. Forms: Neuron SDK, "neuron_parallel_compile CLI".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from kitae.precompile.cache_neuron import first_error

MARK = "kitae-graph:"
"""Begins a line with which a training says that the graphs before it, of this process, are of a phase."""

_MODULE = re.compile(r"(?:(neuronxcc-[^/\s'\"]+)/)?(?:model\.)?(MODULE_[0-9A-Za-z]+(?:\+[0-9A-Za-z]+)?)")
_COUNT = r"(\d{1,9})"
_PROGRESS = re.compile(
    f"Current remaining items are {_COUNT}, locked are {_COUNT}, failed are {_COUNT}, done are {_COUNT}, "
    f"total is {_COUNT}"
)
_TOTALS = re.compile(f"Total (graphs|successful compilations|failed compilations): {_COUNT}")
_CODE = re.compile(r"(?:Received error code: |exitcode=|exit code:? |returned with exit code )(-?\d{1,9})")
_EVENTS = (
    # What a line says, and how it is called here; the first that fits.
    ("Extracting graphs (", "extracted"),
    ("Got a cached failed neff", "poisoned"),
    ("Using a cached neff", "cached"),
    ("Failed compilation with", "failed"),
    ("Another process must be compiling", "waited"),
    ("Call compiler with cmd", "compiled"),
)
OUT_OF_MEMORY = (-9, 137)
"""Exit codes of a compiler that the kernel killed, which it does when the host's memory is used up."""


@dataclass(frozen=True)
class Module:
    """A graph as a log names it."""

    name: str
    version: str = ""


@dataclass(frozen=True)
class Progress:
    """The last state of the cache that was printed."""

    remaining: int
    locked: int
    failed: int
    done: int
    total: int


@dataclass
class CompileLog:
    """What a log says of each graph. Dictionaries keep the order in which the graphs were first named."""

    extracted: dict[Module, str] = field(default_factory=dict)
    """Graphs that a trial run has collected, with the phase, where that was told."""
    cached: dict[Module, str] = field(default_factory=dict)
    """Those whose artefacts were there."""
    compiled: dict[Module, str] = field(default_factory=dict)
    """Those that a compiler was called for."""
    waited: dict[Module, str] = field(default_factory=dict)
    """Those that another process compiled, or has left locked."""
    poisoned: dict[Module, str] = field(default_factory=dict)
    """Those that failed before, and were not tried again."""
    failed: dict[Module, str] = field(default_factory=dict)
    """Those that failed, with the compiler's first error line."""
    codes: list[int] = field(default_factory=list)
    """Exit codes of compilers that ended badly."""
    totals: dict[str, int] = field(default_factory=dict)
    """What the summary counts: graphs, successful compilations, failed compilations."""
    passes: int = 0
    """How often a compiler said PASS, of whichever graph."""
    progress: Progress | None = None

    @property
    def needed(self) -> dict[Module, str]:
        """Every graph that the program asked for, with its phase."""
        found: dict[str, tuple[Module, str]] = {}
        for modules in (self.extracted, self.cached, self.poisoned, self.compiled, self.waited):
            for module, phase in modules.items():
                known, known_phase = found.get(module.name, (module, ""))
                # Some lines name the compiler of a graph, and some do not.
                found[module.name] = (known if known.version else module, known_phase or phase)
        return dict(found.values())

    @property
    def out_of_memory(self) -> bool:
        """Whether a compiler was killed as the host's memory was used up."""
        return any(code in OUT_OF_MEMORY for code in self.codes)


def read_log(lines: Iterable[bytes]) -> CompileLog:
    """Read a log. The phase of a graph is that of the next mark behind it; lines are of one process."""
    log = CompileLog()
    unmarked: list[tuple[str, Module]] = []
    after_failure: Module | None = None
    for raw in lines:
        line = raw.decode("utf-8", errors="replace").rstrip("\n")
        mark = _mark(line)
        if mark is not None:
            _give_phase(log, unmarked, mark)
            continue
        if after_failure is not None and line.strip() and "||" not in line:
            log.failed[after_failure] = log.failed[after_failure] or first_error(line)
        after_failure = _read_line(log, line, unmarked)
    return log


def _mark(line: str) -> str | None:
    words = line.partition(MARK)[2].split()
    return words[0] if words else None


def _give_phase(log: CompileLog, unmarked: list[tuple[str, Module]], phase: str) -> None:
    for event, module in unmarked:
        known: dict[Module, str] = getattr(log, event)
        known[module] = known[module] or phase
    unmarked.clear()


def _read_line(log: CompileLog, line: str, unmarked: list[tuple[str, Module]]) -> Module | None:
    """Note what a line says; the graph that it calls failed, if its reason may follow in the next line."""
    if progress := _PROGRESS.search(line):
        log.progress = Progress(*map(int, progress.groups()))
    if total := _TOTALS.search(line):
        log.totals[total[1]] = int(total[2])
    log.passes += line.count("Compiler status PASS")
    log.codes += [int(code) for code in _CODE.findall(line) if int(code)]
    event = next((name for words, name in _EVENTS if words in line), None)
    # Of a compiler's command, both the graph and the artefact are named: one module.
    modules = [Module(found[2], found[1] or "") for found in _MODULE.finditer(line)] if event else []
    for module in dict.fromkeys(modules):
        if event != "failed":
            _note(log, event or "", module, unmarked)
    if "Failed compilation with" in line and modules:
        log.failed.setdefault(modules[0], _reason(line))
        return modules[0] if not log.failed[modules[0]] else None
    return modules[0] if event == "poisoned" and modules and _note_poisoned(log, modules[0]) else None


def _note(log: CompileLog, event: str, module: Module, unmarked: list[tuple[str, Module]]) -> None:
    known: dict[Module, str] = getattr(log, event)
    if module not in known:
        known[module] = ""
        unmarked.append((event, module))


def _note_poisoned(log: CompileLog, module: Module) -> bool:
    """Remember that its old error may follow; whether none is known yet."""
    return not log.failed.setdefault(module, "")


def _reason(line: str) -> str:
    """What follows the command in `Failed compilation with [command]: reason`."""
    return first_error(line.partition("Failed compilation with")[2].partition("]: ")[2])
