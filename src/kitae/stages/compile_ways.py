"""How the graphs of a training are compiled ahead, by stack, and what a training has asked for."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kitae.errors import PrecompileError
from kitae.launch.environment import surrounded
from kitae.launch.orphans import bound
from kitae.precompile.answer import Needed
from kitae.precompile.caches import check_root, place_of
from kitae.precompile.compile_log import CompileLog, Module, read_log
from kitae.precompile.drive import Tool, collect, find_tool, run_logged
from kitae.precompile.entries import Entry
from kitae.precompile.graphs import Graph, read_graphs
from kitae.stages.compile_node import Order, compile_here, compile_on
from kitae.stages.job import Job, Machines
from kitae.stages.trial import FOLDER, MACHINES, graph_files, write_trial
from kitae.storage.files import replace_file

COLLECTING = "NEURON_EXTRACT_GRAPHS_ONLY"
"""Set by neuron_parallel_compile while it collects."""
TRIAL = (sys.executable, "-m", "kitae.stages.trial")
"""The command that trains a little; a folder follows."""
HERE = "this machine"

Entries = Mapping[str, Sequence[Entry]]
"""What caches have, by machine."""


@dataclass(frozen=True)
class Way:
    """How graphs of a stack are compiled ahead."""

    kind: str
    """Of the compiler's cache."""
    compile: Callable[[Job], tuple[list[Needed], Entries]]
    """Compiles; what the training needs, and what the caches then have."""
    look: Callable[[Job, Sequence[Needed]], Entries]
    """What the caches have now."""
    used: Callable[[Path], list[Needed]]
    """What a training has asked for, by its folder."""
    always: bool
    """Whether a training is preceded by it without being asked: its results can be taken."""
    told: bool = False
    """Whether logs of a training tell what was compiled while it trained."""


# ---- Neuron through torch-xla


def _compile_neuron(job: Job) -> tuple[list[Needed], Entries]:
    folder = write_trial(job)
    log = folder.parent / "collect.log"
    job.report(f"precompile: collecting graphs by a trial run; its log is {log}")
    command = [*TRIAL, str(folder)]
    code = (
        _collect_here(job, command, log) if job.machines is None else _collect_on(job.machines, command, log)
    )
    if code:
        raise PrecompileError(
            f"the trial run failed (exit code {code}): {last_error(log)}; all of it is in {log}"
        )
    # The log of several machines has their lines between each other's; that of a rank is its own.
    needed = _needed_of([*_rank_logs(folder), log])
    return needed, _on_machines(job, _order(job, needed, command))


def _collect_here(job: Job, command: Sequence[str], log: Path) -> int:
    with surrounded(job.backend, job.recipe.training.precision):
        check_root(place_of("neuron"))  # before the minutes of a trial
        environment = dict(os.environ)
        tool = Tool(find_tool(environment), environment, job.report, starter=bound())
        return collect(tool, command, log).code


def _collect_on(machines: Machines, command: Sequence[str], log: Path) -> int:
    """The tool runs on each machine, around what starts the ranks there."""
    tool = (find_tool(os.environ), "--command", "collect")
    there = replace(machines, starter=(*machines.starter, *tool))
    replace_file(Path(command[-1]) / MACHINES, json.dumps(asdict(there)).encode())
    return run_logged(command, log, {**os.environ, COLLECTING: "1"})


def _order(job: Job, needed: Sequence[Needed], command: Sequence[str] = (), compiles: bool = True) -> Order:
    names = tuple(one.name for one in needed)
    precision = job.recipe.training.precision
    return Order(job.backend, precision, "neuron", names, tuple(command), job.compiling, compiles)


def _on_machines(job: Job, order: Order) -> Entries:
    folder = job.run.path / FOLDER
    if job.machines is None:
        return {HERE: compile_here(order, folder, job.report)}
    return compile_on(job.machines, order, folder)


def _look_neuron(job: Job, needed: Sequence[Needed]) -> Entries:
    return _on_machines(job, _order(job, needed, compiles=False))


def _needed_of(logs: Sequence[Path]) -> list[Needed]:
    """The graphs that processes asked for, each by its log, with their phases."""
    found: dict[str, tuple[Module, str]] = {}
    for log in logs:
        for module, phase in read(log).needed.items():
            known, known_phase = found.get(module.name, (module, ""))
            found[module.name] = (known if known.version else module, known_phase or phase)
    return [Needed(phase, module.name, module.version) for module, phase in found.values()]


def read(log: Path) -> CompileLog:
    """A log; an empty one where there is none."""
    try:
        with log.open("rb") as file:
            return read_log(file)
    except OSError:
        return CompileLog()


def _rank_logs(run: Path) -> list[Path]:
    return sorted((run / "logs").glob("rank-*.log"))


def logs_of(run: Path) -> list[Path]:
    """Where the compiler's words of a training may be: the first rank's are in its job's log."""
    return [*_rank_logs(run), run / "logs" / "slurm-train.log"]


def last_error(log: Path) -> str:
    """What a trial run said last of an error: its own line, else that of a traceback, else its last words."""
    text = log.read_bytes().decode("utf-8", errors="replace")
    lines = [line for line in text.splitlines()[::-1] if line.strip() and "||" not in line]
    looks = (r"error: ", r"[\w.]*(Error|Exception)\b")
    found = (line for look in looks for line in lines if re.match(look, line))
    return next(found, lines[0] if lines else "it said nothing")


def _used_neuron(run: Path) -> list[Needed]:
    needed = _needed_of(logs_of(run))
    if not needed:
        raise PrecompileError(
            f"{run}: its logs (logs/rank-*.log) name no graph of Neuron's compiler; name a run that trained "
            "on Trn1"
        )
    return needed


# ---- XLA on a CPU


def _compile_xla(job: Job) -> tuple[list[Needed], Entries]:
    folder = _try_out(job)
    needed = _named(graph_files(folder))
    return needed, _look_xla(job, needed)


def _try_out(job: Job) -> Path:
    """Let a trial run compile what it meets; its folder."""
    folder = write_trial(job)
    if job.machines is not None:
        replace_file(folder / MACHINES, json.dumps(asdict(job.machines)).encode())
    log = folder.parent / "trial.log"
    job.report(f"precompile: a trial run compiles what it meets; its log is {log}")
    code = run_logged([*bound(), *TRIAL, str(folder)], log)
    if code:
        raise PrecompileError(
            f"the trial run failed (exit code {code}): {last_error(log)}; all of it is in {log}"
        )
    return folder


def _look_xla(job: Job, needed: Sequence[Needed]) -> Entries:
    return {HERE: place_of("xla").entries()}


def _used_xla(run: Path) -> list[Needed]:
    return _named([run])


def _named(files: Sequence[Path]) -> list[Needed]:
    graphs = [one for file in files for one in read_graphs(file) if one.name]
    return [Needed(one.phase, name) for one, name in _with_names(graphs)]


def _with_names(graphs: Sequence[Graph]) -> Iterator[tuple[Graph, str]]:
    """Graphs with their names in the cache; one that was compiled for another phase is known by its key."""
    known = {one.key: one.artefact for one in graphs if one.artefact and one.key}
    for one in graphs:
        yield one, one.artefact or known.get(one.key, one.key)


# ---- TorchNeuron


def _compile_torchneuron(job: Job) -> tuple[list[Needed], Entries]:
    """Its compiler tells no keys: all that its cache has after a trial run is taken for needed."""
    before = {entry.name for entry in _torchneuron_entries(job)}
    _try_out(job)
    entries = _torchneuron_entries(job)
    needed = [Needed("", entry.name) for entry in entries if entry.state == "done"]
    new = len({one.name for one in needed} - before)
    job.report(f"precompile: {new} artefacts are new; which of the others this training needs, nobody tells")
    return needed, {HERE: entries}


def _look_torchneuron(job: Job, needed: Sequence[Needed]) -> Entries:
    return {HERE: _torchneuron_entries(job)}


def _torchneuron_entries(job: Job) -> list[Entry]:
    with surrounded(job.backend, job.recipe.training.precision):
        return place_of("torchneuron").entries()


def _used_torchneuron(run: Path) -> list[Needed]:
    raise PrecompileError(
        f"{run}: TorchNeuron tells of no graph by a key; kitae cache list shows what its cache has"
    )


WAYS: Mapping[str, Way] = {
    "trn1-xla": Way("neuron", _compile_neuron, _look_neuron, _used_neuron, always=True, told=True),
    # On a CPU what was compiled cannot be loaded again: it shows that all is there, and saves no time.
    "xla-cpu": Way("xla", _compile_xla, _look_xla, _used_xla, always=False),
    # Operations are compiled when they are first called, in the training itself where nobody asked before.
    "torchneuron": Way(
        "torchneuron", _compile_torchneuron, _look_torchneuron, _used_torchneuron, always=False
    ),
}
"""By the stacks of `backend.stack`; what is not here compiles nothing ahead."""
