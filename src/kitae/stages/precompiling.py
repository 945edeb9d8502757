"""The stage `precompile`: every graph of a training compiled before it begins, and whether that is so.

Where nothing is compiled ahead (CPU, CUDA) there is no such stage. The answer compares keys: those that the
trial run, or the training itself, asked for, against what the compiler's cache has, on every machine that
trains.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kitae.backend.stack import stack_here
from kitae.errors import PrecompileError, RecipeError
from kitae.launch.environment import here, settings_of
from kitae.precompile.answer import Answer, Needed, answer
from kitae.precompile.graphs import FILE as GRAPHS
from kitae.precompile.graphs import Graph, read_graphs
from kitae.stages.compile_ways import COLLECTING, WAYS, Entries, Way, logs_of, read
from kitae.stages.files import key_of, read_json, write_json
from kitae.stages.job import Job
from kitae.stages.run_folder import RunFolder
from kitae.stages.training import train_key
from kitae.stages.trial import FOLDER, graph_files, trial_folder
from kitae.storage.folders import remove_folder

ANSWER = "answer.json"
"""In the run's folder `precompile/`: what was needed, and what is missing."""
_CACHE_VARIABLES = ("NEURON_COMPILE_CACHE_URL", "TORCH_NEURONX_NEFF_CACHE_DIR")
_SHOWN = 30


def way_of(job: Job) -> Way | None:
    """How the graphs of a job are compiled; None where there is nothing to compile, as inside of a trial."""
    return None if os.environ.get(COLLECTING) == "1" else WAYS.get(stack_here(job.backend))


def applies(job: Job, asked: bool) -> bool:
    """Whether the stage is one of this job's."""
    way = way_of(job)
    return way is not None and (way.always or asked)


def refuse_collecting(job: Job) -> None:
    """Raise `RecipeError` when the tool runs a training that is no trial: its weights would be made up."""
    if os.environ.get(COLLECTING) == "1" and job.run.path.parent.name != FOLDER:
        raise RecipeError(
            f"{COLLECTING}=1 is set, with which a training computes nothing: start kitae without "
            "neuron_parallel_compile, which kitae precompile runs itself"
        )


def cache_environment() -> dict[str, str]:
    """Variables of this process, with those that say where the caches of a training here would be."""
    at = here("127.0.0.1", "", several=False)
    stacks = ("trn1-xla", "torchneuron")
    given = {one.name: one.value for stack in stacks for one in settings_of(stack, "", at)}
    return {**{name: given[name] for name in _CACHE_VARIABLES if name in given}, **os.environ}


def precompile_key(job: Job) -> str:
    """Key of the stage: what is trained, in which pieces and on how many ranks, and for which compiler."""
    recipe, way = job.recipe, way_of(job)
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
    """Whether what was needed is in the cache of every machine, now."""
    way, record = way_of(job), read_json(job.run.path / FOLDER / ANSWER)
    if way is None or record.get("key") != key:
        return False
    needed = [Needed(**one) for one in record["needed"]]
    return _answer(needed, way.look(job, needed)).complete


def precompile(job: Job, key: str) -> dict[str, Any]:
    """Compile what the training needs. Raises `PrecompileError` that lists what is missing, and why."""
    way = way_of(job)
    assert way is not None, "the stage applies"
    try:
        needed, entries = way.compile(job)
    finally:
        _drop_trial(job)
    said = _answer(needed, entries)
    _record(job.run, key, needed, said)
    if not said.complete:
        raise PrecompileError(listing(said))
    phases = ", ".join(phase for phase in dict.fromkeys(one.phase for one in needed) if phase)
    where = f" on each of {', '.join(entries)}" if len(entries) > 1 else ""
    job.report(
        f"precompile: complete: {said.needed} graphs are compiled{where}" + (f" ({phases})" * bool(phases))
    )
    return {"graphs": said.needed, "machines": list(entries)}


def _answer(needed: Sequence[Needed], entries: Entries) -> Answer:
    """The answer over all machines; what is missing on one of several is told with its name."""
    each = {name: answer(needed, there) for name, there in entries.items()}
    missing = [
        replace(one, detail=f"on {name}{': ' * bool(one.detail)}{one.detail}") if len(each) > 1 else one
        for name, said in each.items()
        for one in said.missing
    ]
    return Answer(max((said.needed for said in each.values()), default=0), tuple(missing))


def _record(run: RunFolder, key: str, needed: Sequence[Needed], said: Answer) -> None:
    value = {
        "format": 1,
        "key": key,
        "complete": said.complete,
        "needed": [asdict(one) for one in needed],
        "missing": [asdict(one) for one in said.missing],
    }
    write_json(run.path / FOLDER / ANSWER, value)


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
    reasons = Counter(one.reason for one in said.missing)
    counts = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    lines = [f"  {one}" for one in said.missing[:_SHOWN]]
    if len(said.missing) > _SHOWN:
        lines.append(f"  and {len(said.missing) - _SHOWN} more")
    graphs = len({one.name for one in said.missing})
    head = f"{graphs} of {said.needed} graphs are not compiled ({counts}):"
    return "\n".join([head, *lines, "; ".join(_WAYS_OUT[reason] for reason in reasons)])


_WAYS_OUT = {
    "failed": "a graph that failed is not tried again until kitae precompile --retry-failed, or kitae cache "
    "clear-failed --yes",
    "locked": "a lock that was left goes with kitae cache clear-locks --yes, one that is held by itself",
    "half-written": "what is half-written goes with kitae cache clear-failed --yes",
    "not compiled": "what was collected and not compiled is compiled by kitae precompile",
    "never seen": "kitae precompile compiles what was never seen",
    "other compiler version": "compile with the compiler that trains",
    "other flags": "compile with the flags that train (kitae precompile --why-miss names what differs)",
}


@dataclass(frozen=True)
class Use:
    """What a training has asked its compiler for."""

    needed: tuple[Needed, ...]
    compiled: tuple[Needed, ...] | None
    """Those that the compiler was called for while it trained; None where no log tells."""
    unmet: tuple[Graph, ...]
    """Those of its ledger that the trial run before it has not met."""


def used_by(run: Path, way: Way) -> Use:
    """What a training has asked for, by its folder. Raises `PrecompileError` where that does not tell."""
    before = read_json(run / FOLDER / ANSWER).get("needed", [])
    phases = {one["name"]: one["phase"] for one in before}
    needed = tuple(replace(one, phase=one.phase or phases.get(one.name, "")) for one in way.used(run))
    return Use(needed, _compiled(run, needed) if way.told else None, _unmet(run))


def _compiled(run: Path, needed: Sequence[Needed]) -> tuple[Needed, ...]:
    names = {module.name for log in logs_of(run) for module in read(log).compiled}
    return tuple(one for one in needed if one.name in names)


def _unmet(run: Path) -> tuple[Graph, ...]:
    """Graphs of the training's ledger that are not in the trial's; none where one of the two is missing."""
    trial = graph_files(run / FOLDER / "trial")
    if not trial or not (run / GRAPHS).is_file():
        return ()
    met = {(one.phase, one.key) for file in trial for one in read_graphs(file)}
    return tuple(one for one in read_graphs(run) if (one.phase, one.key) not in met)
