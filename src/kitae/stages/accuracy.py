"""How a training went against its plan, kept in the run and in the history of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from kitae.errors import KitaeError
from kitae.plan import history
from kitae.plan.history import Entry
from kitae.plan.identity import identity
from kitae.stages.files import read_json, write_json
from kitae.stages.job import Job
from kitae.stages.run_folder import now
from kitae.stages.topology import world_size
from kitae.train.metrics import Record, read_records

FILE, SAVES = "accuracy.json", "saves.jsonl"
"""In the run's folder: predicted and actual; and how long the training waited for each save."""


def keep_accuracy(job: Job, began: float) -> None:
    """Write down how the attempt that began then (seconds since 1970) went; never fails, but says so once."""
    try:
        entries = list(_entries(job, began))
        if not entries:
            return
        _keep_in_run(job.run.path / FILE, entries)
        history.append(entries)
    except (KitaeError, OSError, ValueError, KeyError, TypeError) as error:
        job.report(f"train: warning: how the plan did is not kept ({error}); the training is as it should be")


def _keep_in_run(path: Path, entries: Sequence[Entry]) -> None:
    """Beside earlier attempts, in place of the same one."""
    lines: list[dict[str, Any]] = read_json(path).get("attempts", [])
    kept = [one for one in lines if one["attempt"] != entries[0].attempt]
    told = [
        {
            "attempt": one.attempt,
            "phase": one.phase,
            "ended": one.time,
            "steps": one.steps,
            "predicted": one.predicted,
            "actual": one.actual,
            "load": one.load,
        }
        for one in entries
    ]
    write_json(path, {"attempts": [*kept, *told]})


def _entries(job: Job, began: float) -> Iterator[Entry]:
    """One for each phase that made updates in this attempt."""
    records = _of_attempt(list(read_records(job.run.metrics)), began)
    plan = read_json(job.run.path / "plan.json")
    learnable: dict[str | None, dict[str, Any]] = {
        one["phase"]: one["fields"] for one in plan.get("experience", [])
    }
    for phase in dict.fromkeys(one.get("phase") for one in records if one["kind"] == "train"):
        own = [one for one in records if one.get("phase") == phase or one["kind"] == "start"]
        steady = [one for one in own if one["kind"] == "train" and not one["first_step"]]
        if steady:
            yield Entry(
                time=now(),
                run=str(job.run.path),
                attempt=job.run.attempts,
                phase=phase,
                steps=len(steady),
                predicted=predictions(plan, phase),
                actual={**_measured(own, steady, began), **_saved(job.run.path, job.run.checkpoints, began)},
                load=_load(),
                **learnable.get(phase, _unplanned(job)),
            )


def _unplanned(job: Job) -> dict[str, Any]:
    """Of a training elsewhere than on a CPU of this machine, which nothing is learned from."""
    recipe = job.recipe
    return {
        "machine": identity().key,
        "family": "decoder" if recipe.objective == "causal-lm" else recipe.objective,
        "precision": recipe.training.precision,
        "ranks": world_size(recipe),
        "cut": recipe.parallel.tensor_parallel_size,
        "threads": 0,
        "counts": {},
    }


def _of_attempt(records: Sequence[Record], began: float) -> Sequence[Record]:
    """What was recorded since; nothing where the attempt did not come so far."""
    starts = [place for place, one in enumerate(records) if one["kind"] == "start"]
    if not starts or _seconds(records[starts[-1]]) < began - 1:
        return []
    return records[starts[-1] :]


def _measured(own: Sequence[Record], steady: Sequence[Record], began: float) -> dict[str, float | None]:
    evaluations = [one["seconds"] for one in own if one["kind"] == "evaluation"]
    start = next((_seconds(one) for one in own if one["kind"] == "start"), None)
    return {
        "step_s": median(one["step_seconds"] for one in steady),
        "step_best_s": min(one["step_seconds"] for one in steady),
        "tokens_per_s": median(one["tokens_per_s"] for one in steady),
        "memory_bytes": max(one["peak_memory_bytes"] for one in own if one["kind"] == "train"),
        "evaluate_s": median(evaluations) if evaluations else None,
        "start_s": None if start is None else max(0.0, start - began),
    }


def _saved(run: Path, checkpoints: Path, began: float) -> dict[str, float | None]:
    """Of the saves of this attempt."""
    seconds = [one["seconds"] for one in read_records(run / SAVES) if one["time"] >= began]
    return {
        "checkpoint_s": median(seconds) if seconds else None,
        "checkpoint_bytes": _newest_bytes(checkpoints),
    }


def predictions(plan: Mapping[str, Any], phase: str | None) -> dict[str, float | None]:
    """What a run's `plan.json` says of a phase, in the same names as what is measured."""
    found = plan.get("estimate") or {}
    own = next((one for one in found.get("phases", []) if one["name"] == phase), None)
    if own is None:
        return {}
    low, high = own["step_s_interval"]
    return {
        "step_s": own["step_s"],
        "step_s_low": low,
        "step_s_high": high,
        "tokens_per_s": own["tokens_per_day"] / 86400,
        "memory_bytes": found["memory"]["device_used"],
        "evaluate_s": _each(own.get("evaluate_s"), own.get("evaluations")),
        "checkpoint_s": _each(own.get("save_s"), own.get("saves")),
        "checkpoint_bytes": own.get("save_bytes"),
        "start_s": own.get("start_s"),
    }


def _each(seconds: float | None, times: int | None) -> float | None:
    return seconds / times if seconds and times else None


def _newest_bytes(checkpoints: Path) -> int | None:
    folders = sorted(checkpoints.glob("step-*"))
    if not folders:
        return None
    return sum(path.stat().st_size for path in folders[-1].iterdir() if path.is_file())


def _seconds(start: Record) -> float:
    return datetime.fromisoformat(start["time"]).timestamp()


def _load() -> float | None:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
