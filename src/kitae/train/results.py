"""`results.json`: what came out, worked out from the metrics file, which is the truth about the run."""

from __future__ import annotations

import io
import json
import platform
from collections.abc import Iterable
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

import kitae
from kitae.checkpoint.resume import Checkpoint
from kitae.storage.files import replace_file
from kitae.train.baseline import baseline
from kitae.train.build import build_objective
from kitae.train.course import Course, Stretch
from kitae.train.evaluate import Evaluation, paired_drop
from kitae.train.job import Phase, TrainJob, TrainResult
from kitae.train.metrics import Record, read_records

Results = dict[str, Any]


def training_summary(records: Iterable[Record]) -> Results:
    """Losses, tokens and speed over all attempts.

    The average speed leaves out the first step of each attempt, which also pays for warming up; with no other
    step it is null.
    """
    attempts = 0
    updates = []
    for record in records:
        attempts += record["kind"] == "start"
        if record["kind"] == "train":
            updates.append({name: record.get(name, 0) for name in _READ})
    steady = [one for one in updates if not one["first_step"]]
    steady_seconds = _sum(steady, "step_seconds")
    return {
        "steps": len(updates),
        "attempts": attempts,
        "train_loss_first": updates[0]["loss"] if updates else None,
        "train_loss_last": updates[-1]["loss"] if updates else None,
        "padded_tokens": _sum(updates, "padded_tokens"),
        "real_tokens": _sum(updates, "real_tokens"),
        "train_seconds": _sum(updates, "step_seconds"),
        "first_step_seconds": updates[0]["step_seconds"] if updates else None,
        "rows": _sum(updates, "rows"),
        "rows_per_s": _sum(steady, "rows") / steady_seconds if steady else None,
        "tokens_per_s": _sum(steady, "padded_tokens") / steady_seconds if steady else None,
        "real_tokens_per_s": _sum(steady, "real_tokens") / steady_seconds if steady else None,
    }


_READ = ("loss", "rows", "padded_tokens", "real_tokens", "step_seconds", "first_step")


def _sum(updates: list[Record], name: str) -> Any:
    return sum(one[name] for one in updates)


def heldout_summary(before: Evaluation | None, after: Evaluation | None) -> Results | None:
    """Held-out numbers before and after, losses compared row by row; null without held-out rows."""
    if before is None or after is None:
        return None
    pairs = ((name, before.metrics.get(name), after.metrics[name]) for name in after.metrics)
    found: Results = {"loss_before": before.loss, "loss_after": after.loss}
    for name, first, last in pairs:
        found |= {f"{name}_before": first, f"{name}_after": last}
    return {**found, after.counted: after.tokens, **asdict(paired_drop(before, after))}


def write_run_results(job: TrainJob, course: Course) -> Results:
    """Work the results of a finished run out and write them to `results.json`."""
    records = list(read_records(job.folder / "metrics.jsonl"))
    results = {
        "recipe": job.recipe.name,
        "recipe_hash": job.recipe_hash,
        "objective": job.recipe.objective,
        "seed": job.recipe.seed,
        "backend": job.backend.name,
        "precision": job.recipe.training.precision,
        "optimizer": job.recipe.optimizer.name,
        **training_summary(records),
        # Not counted from the lines: what the checkpoint is compared with must not depend on a file's luck.
        "steps": course.steps,
        **_phase_summary(job, course.stretches[-1]),
        **_phases(job, course, records),
        **job.recipe.parallel.model_dump(include=set(_TOPOLOGY)),
        "model": model_summary(job),
        "versions": {
            "kitae": kitae.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
    replace_file(
        results_path(job),
        (json.dumps(results, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode(),
    )
    return results


def _phase_summary(job: TrainJob, stretch: Stretch) -> Results:
    """Data, batches and held-out loss of a phase: of the last one, where they differ."""
    phase, lengths = stretch.phase, stretch.lengths
    found = (_load(job, step, phase) for step in (stretch.first, stretch.last))
    heldout = heldout_summary(*found)
    if heldout is not None:
        heldout |= baseline(phase)
    return {
        "data_key": phase.data_key,
        "data": [source.path or source.hub for source in phase.recipe.data.train],
        "heldout": heldout,
        "global_batch_size": lengths.global_batch_size,
        "micro_batch_size": lengths.micro_batch_size,
        "accumulation_steps": lengths.accumulation_steps,
        "sequence_length": lengths.sequence_length,
        "learning_rate": phase.recipe.optimizer.learning_rate,
    }


def _phases(job: TrainJob, course: Course, records: list[Record]) -> Results:
    """Every phase on its own, where there are several."""
    if course.stretches[0].phase.name is None:
        return {}
    return {
        "phases": [
            {
                "name": one.phase.name,
                **_without_attempts(record for record in records if record.get("phase") == one.phase.name),
                "steps": one.lengths.steps,
                **_phase_summary(job, one),
            }
            for one in course.stretches
        ]
    }


def _without_attempts(records: Iterable[Record]) -> Results:
    summary = training_summary(records)
    del summary["attempts"]
    return summary


def finished_result(job: TrainJob, checkpoint: Checkpoint, course: Course) -> TrainResult | None:
    """Return the result of a run that has nothing left to do, None when it has."""
    try:
        results = json.loads(results_path(job).read_text(encoding="utf-8"))
        same = results["recipe_hash"] == job.recipe_hash and results["steps"] == course.steps
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    if not same or checkpoint.step != course.steps:
        return None
    return TrainResult(checkpoint.step, checkpoint.path, results, checkpoint.step, already_complete=True)


def model_summary(job: TrainJob) -> Results:
    """Sizes of the model."""
    sizes = {name: job.model_config[name] for name in _SIZES if name in job.model_config}
    full = {piece.tensor: prod(piece.full_shape) for layout in job.model.layouts for piece in layout.pieces}
    return {**sizes, "parameters": sum(full.values())}


def results_path(job: TrainJob) -> Path:
    """Where the results lie."""
    return job.folder / "results.json"


def evaluation_path(job: TrainJob, step: int, phase: Phase) -> Path:
    """Where what the held-out rows of a phase show after `step` updates lies."""
    prefix = "" if phase.name is None else f"{phase.name}-"
    return job.folder / "evaluations" / f"{prefix}step-{step:08d}.npy"


def save_evaluation(path: Path, evaluation: Evaluation) -> None:
    """Keep the rows' scores, float64 [K, rows] in .npy, so that a resumed run can compare against them."""
    buffer = io.BytesIO()
    np.save(buffer, evaluation.scores, allow_pickle=False)
    replace_file(path, buffer.getvalue())


_TOPOLOGY = ("data_parallel_size", "tensor_parallel_size", "sequence_parallel", "zero1")
_SIZES = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "tie_word_embeddings",
)


def _load(job: TrainJob, step: int, phase: Phase) -> Evaluation | None:
    path = evaluation_path(job, step, phase)
    if not path.exists():
        return None
    return Evaluation.of(build_objective(job.model, phase.recipe), np.load(path, allow_pickle=False))
