"""The stage `precompile`: every graph of a training compiled before it begins, and whether that is so.

What has to be compiled, and how it is found out, differs by stack; `WAYS` is the table. Where nothing is
compiled ahead (CPU, CUDA) there is no such stage. The answer compares keys: those that the trial run, or the
training itself, asked for, against what the compiler's cache has.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kitae.backend.stack import stack_here
from kitae.errors import PrecompileError
from kitae.launch.environment import here, settings_of, surrounded
from kitae.precompile.answer import Answer, Needed, answer, said_of_locks
from kitae.precompile.caches import Place, check_root, place_of
from kitae.precompile.compile_log import CompileLog, Module, read_log
from kitae.precompile.drive import Tool, collect, compile_collected, find_tool
from kitae.precompile.entries import Entry
from kitae.precompile.graphs import Graph, read_graphs
from kitae.stages.files import key_of, read_json, write_json
from kitae.stages.job import Job, Report
from kitae.stages.run_folder import RunFolder
from kitae.stages.training import train_key
from kitae.stages.trial import graph_files, trial_folder, write_trial
from kitae.storage.folders import remove_folder

ANSWER = "answer.json"
"""In the run's folder `precompile/`: what was needed, and what is missing."""
COLLECTING = "NEURON_EXTRACT_GRAPHS_ONLY"
_CACHE_VARIABLES = ("NEURON_COMPILE_CACHE_URL", "TORCH_NEURONX_NEFF_CACHE_DIR")
TRIAL = (sys.executable, "-m", "kitae.stages.trial")
"""The command that trains a little; a folder follows."""
_SHOWN = 30


@dataclass(frozen=True)
class Way:
    """How graphs of a stack are compiled ahead."""

    kind: str
    """Of the compiler's cache."""
    compile: Callable[[Job, Place], list[Needed]]
    """Compiles, and says what the training needs."""
    used: Callable[[Path], list[Needed]]
    """What a training has asked for, by its folder."""
    always: bool
    """Whether a training is preceded by it without being asked: its results can be taken."""


def way_of(job: Job) -> Way | None:
    """How the graphs of a job are compiled; None where there is nothing to compile, as inside of a trial."""
    return None if os.environ.get(COLLECTING) == "1" else WAYS.get(stack_here(job.backend))


def applies(job: Job, asked: bool) -> bool:
    """Whether the stage is one of this job's."""
    way = way_of(job)
    return way is not None and (way.always or asked)


def cache_environment() -> dict[str, str]:
    """Variables of this process, with those that say where the caches of a training here would be."""
    at = here("127.0.0.1", "", several=False)
    stacks = ("trn1-xla", "torchneuron")
    given = {one.name: one.value for stack in stacks for one in settings_of(stack, "", at)}
    return {**{name: given[name] for name in _CACHE_VARIABLES if name in given}, **os.environ}


def precompile_key(job: Job) -> str:
    """Key of the stage: what is trained, in which pieces and on how many ranks, and for which compiler."""
    recipe = job.recipe
    way = way_of(job)
    return key_of(
        {
            "train": train_key(job),
            "training": recipe.training.model_dump(mode="json"),
            "parallel": recipe.parallel.model_dump(mode="json"),
            "evaluation": recipe.evaluation.model_dump(mode="json"),
            "backend": job.backend,
            "flags": os.environ.get("NEURON_CC_FLAGS", ""),
            "cache": "" if way is None else way.kind,
        }
    )


def is_precompiled(job: Job, key: str) -> bool:
    """Whether what was needed is in the cache of this machine, now."""
    way, record = way_of(job), read_json(job.run.path / "precompile" / ANSWER)
    if way is None or record.get("key") != key:
        return False
    needed = [Needed(**one) for one in record["needed"]]
    return answer(needed, place_of(way.kind, None, cache_environment()).entries()).complete


def precompile(job: Job, key: str) -> dict[str, Any]:
    """Compile what the training needs. Raises `PrecompileError` that lists what is missing, and why."""
    way = way_of(job)
    assert way is not None, "the stage applies"
    with surrounded(job.backend, job.recipe.training.precision):
        place = place_of(way.kind)
        check_root(place)
        before = {entry.name for entry in place.entries() if entry.state == "done"}
        needed = way.compile(job, place)
        entries = place.entries()
    said = answer(needed, entries)
    _record(job.run, key, needed, said)
    _drop_trial(job)
    if not said.complete:
        raise PrecompileError(listing(said))
    new = len({one.name for one in needed} - before)
    names = ", ".join(phase for phase in dict.fromkeys(one.phase for one in needed) if phase)
    job.report(
        f"precompile: complete: {said.needed} graphs are compiled, {new} of them now"
        + (f" ({names})" if names else "")
    )
    return {"graphs": said.needed, "compiled": new, "cache": str(place.root)}


def _record(run: RunFolder, key: str, needed: Sequence[Needed], said: Answer) -> None:
    value = {
        "format": 1,
        "key": key,
        "complete": said.complete,
        "needed": [asdict(one) for one in needed],
        "missing": [asdict(one) for one in said.missing],
    }
    write_json(run.path / "precompile" / ANSWER, value)


def _drop_trial(job: Job) -> None:
    """The trial's weights are worth nothing; its logs and graphs stay."""
    checkpoints = trial_folder(job) / "checkpoints"
    if checkpoints.exists():
        remove_folder(checkpoints)


def listing(said: Answer) -> str:
    """What is missing, by phase, with the reasons, for a person."""
    if not said.needed:
        return (
            "the trial run has asked the compiler for no graph: nothing is compiled; its logs are in the "
            "run's folder precompile/"
        )
    counts = ", ".join(
        f"{count} {reason}" for reason, count in Counter(one.reason for one in said.missing).items()
    )
    lines = [f"  {one}" for one in said.missing[:_SHOWN]]
    if len(said.missing) > _SHOWN:
        lines.append(f"  and {len(said.missing) - _SHOWN} more")
    head = f"{len(said.missing)} of {said.needed} graphs are not compiled ({counts}):"
    return "\n".join([head, *lines, _way_out(said)])


def _way_out(said: Answer) -> str:
    reasons = {one.reason for one in said.missing}
    ways = [text for reason, text in _WAYS_OUT.items() if reason in reasons]
    return "; ".join(ways) or "run kitae precompile again"


_WAYS_OUT = {
    "failed": "a graph that failed is not tried again until kitae precompile --retry-failed, or kitae cache "
    "clear-failed --yes",
    "locked": "a lock that was left goes with kitae cache clear-locks --yes, one that is held by itself",
    "half-written": "what is half-written goes with kitae cache clear-failed --yes",
    "never seen": "kitae precompile compiles what was never seen",
    "other compiler version": "compile with the compiler that trains",
    "other flags": "compile with the flags that train (kitae precompile --why-miss names what differs)",
}


# ---- Neuron through torch-xla


def _compile_neuron(job: Job, place: Place) -> list[Needed]:
    environment = dict(os.environ)
    tool = Tool(find_tool(environment), environment, job.report, job.compiling)
    folder = write_trial(job)
    logs = folder.parent
    command = [*TRIAL, str(folder)]
    job.report(f"precompile: collecting graphs by a trial run; its log is {logs / 'collect.log'}")
    collected = collect(tool, command, logs / "collect.log")
    if collected.code:
        raise PrecompileError(
            f"the trial run failed (exit code {collected.code}): {_last_error(logs / 'collect.log')}; "
            f"all of it is in {logs / 'collect.log'}"
        )
    needed = _needed_of([logs / "collect.log", *_rank_logs(folder)])
    open_graphs = _open_graphs(needed, place.entries(), job.report)
    if open_graphs:
        compile_collected(tool, command, logs / "compile.log", open_graphs)
    return needed


def _open_graphs(needed: Sequence[Needed], entries: Sequence[Entry], report: Report) -> int:
    """How many are to be compiled. Raises `PrecompileError` for one that would be waited for without end."""
    names = {one.name for one in needed}
    mine = [entry for entry in entries if entry.name in names]
    left = [entry for entry in mine if entry.state != "done" and _is_left(entry)]
    if left:
        raise PrecompileError(
            f"{left[0].label} is locked {said_of_locks(left[0])}; the compiler would wait for it without "
            "end: remove it (--yes), and run the same command"
        )
    done = {entry.name for entry in mine if entry.state == "done"}
    report(f"precompile: {len(names)} graphs, {len(names & done)} of them are in the cache")
    return len(names - done)


def _is_left(entry: Entry) -> bool:
    return any(lock.holder == "gone" for lock in entry.locks)


def _needed_of(logs: Sequence[Path]) -> list[Needed]:
    """The graphs that processes asked for, each by its log, with their phases."""
    found: dict[str, tuple[Module, str]] = {}
    for log in logs:
        for module, phase in _read(log).needed.items():
            known, known_phase = found.get(module.name, (module, ""))
            found[module.name] = (known if known.version else module, known_phase or phase)
    return [Needed(phase, module.name, module.version) for module, phase in found.values()]


def _read(log: Path) -> CompileLog:
    try:
        with log.open("rb") as file:
            return read_log(file)
    except OSError:
        return CompileLog()


def _rank_logs(run: Path) -> list[Path]:
    return sorted((run / "logs").glob("rank-*.log"))


def _last_error(log: Path) -> str:
    """What a trial run said last of an error: its own line, else that of a traceback, else its last words."""
    text = log.read_bytes().decode("utf-8", errors="replace")
    lines = [line for line in text.splitlines()[::-1] if line.strip() and "||" not in line]
    looks = (r"error: ", r"[\w.]*(Error|Exception)\b")
    found = (line for look in looks for line in lines if re.match(look, line))
    return next(found, lines[0] if lines else "it said nothing")


def _used_neuron(run: Path) -> list[Needed]:
    needed = _needed_of(_rank_logs(run))
    if not needed:
        raise PrecompileError(
            f"{run}: its logs (logs/rank-*.log) name no graph of Neuron's compiler; name a run that trained "
            "on Trn1"
        )
    return needed


# ---- XLA on a CPU


def _compile_xla(job: Job, place: Place) -> list[Needed]:
    folder = write_trial(job)
    log = folder.parent / "trial.log"
    job.report(f"precompile: a trial run compiles what it meets; its log is {log}")
    with log.open("wb") as file:
        code = subprocess.run([*TRIAL, str(folder)], stdout=file, stderr=file, check=False).returncode
    if code:
        raise PrecompileError(
            f"the trial run failed (exit code {code}): {_last_error(log)}; all of it is in {log}"
        )
    return _named(graph_files(folder) or [folder])


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


WAYS: Mapping[str, Way] = {
    "trn1-xla": Way("neuron", _compile_neuron, _used_neuron, always=True),
    # On a CPU what was compiled cannot be loaded again: it shows that all is there, and saves no time.
    "xla-cpu": Way("xla", _compile_xla, _used_xla, always=False),
}
"""By the stacks of `launch.environment`; what is not here compiles nothing ahead."""


def used_by(run: Path, way: Way) -> tuple[list[Needed], list[Needed]]:
    """What a training has asked for, and which of it the compiler was called for while it trained."""
    needed = way.used(run)
    compiled = {module.name for log in _rank_logs(run) for module in _read(log).compiled}
    return needed, [one for one in needed if one.name in compiled]
