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
from kitae.train.evaluate import Evaluation, paired_drop
from kitae.train.job import TrainJob, TrainResult
from kitae.train.lengths import Lengths
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
            updates.append({name: record[name] for name in _READ})
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
        "tokens_per_s": _sum(steady, "padded_tokens") / steady_seconds if steady else None,
        "real_tokens_per_s": _sum(steady, "real_tokens") / steady_seconds if steady else None,
    }


_READ = ("loss", "padded_tokens", "real_tokens", "step_seconds", "first_step")


def _sum(updates: list[Record], name: str) -> Any:
    return sum(one[name] for one in updates)


def heldout_summary(before: Evaluation | None, after: Evaluation | None) -> Results | None:
    """Held-out loss before and after, compared row by row; null without held-out text."""
    if before is None or after is None:
        return None
    return {
        "loss_before": before.loss,
        "loss_after": after.loss,
        "perplexity_before": before.perplexity,
        "perplexity_after": after.perplexity,
        "tokens": after.tokens,
        **asdict(paired_drop(before, after)),
    }


def write_run_results(job: TrainJob, lengths: Lengths) -> Results:
    """Work the results of a finished run out and write them to `results.json`."""
    training = job.recipe.training
    results = {
        "recipe": job.recipe.name,
        "recipe_hash": job.recipe_hash,
        "data_key": job.data_key,
        "seed": job.recipe.seed,
        "backend": job.backend.name,
        "precision": training.precision,
        **training_summary(read_records(job.folder / "metrics.jsonl")),
        # Not counted from the lines: what the checkpoint is compared with must not depend on a file's luck.
        "steps": lengths.steps,
        "heldout": heldout_summary(*(_load(evaluation_path(job, step)) for step in (0, lengths.steps))),
        "global_batch_size": lengths.global_batch_size,
        "micro_batch_size": lengths.micro_batch_size,
        "accumulation_steps": lengths.accumulation_steps,
        **job.recipe.parallel.model_dump(include=set(_TOPOLOGY)),
        "sequence_length": lengths.sequence_length,
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


def finished_result(job: TrainJob, checkpoint: Checkpoint, lengths: Lengths) -> TrainResult | None:
    """Return the result of a run that has nothing left to do, None when it has."""
    try:
        results = json.loads(results_path(job).read_text(encoding="utf-8"))
        same = results["recipe_hash"] == job.recipe_hash and results["steps"] == lengths.steps
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    if not same or checkpoint.step != lengths.steps:
        return None
    return TrainResult(checkpoint.step, checkpoint.path, results, checkpoint.step, already_complete=True)


def model_summary(job: TrainJob) -> Results:
    """Sizes of the model."""
    sizes = {name: job.model_config[name] for name in _SIZES if name in job.model_config}
    full = {piece.tensor: prod(piece.full_shape) for layout in job.decoder.layouts for piece in layout.pieces}
    return {**sizes, "parameters": sum(full.values())}


def results_path(job: TrainJob) -> Path:
    """Where the results lie."""
    return job.folder / "results.json"


def evaluation_path(job: TrainJob, step: int) -> Path:
    """Where the rows' held-out losses after `step` updates lie."""
    return job.folder / "evaluations" / f"step-{step:08d}.npy"


def save_evaluation(path: Path, evaluation: Evaluation) -> None:
    """Keep the rows' losses, float64 [2, rows] in .npy, so that a resumed run can compare against them."""
    buffer = io.BytesIO()
    np.save(buffer, np.stack((evaluation.row_losses, evaluation.row_tokens)), allow_pickle=False)
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


def _load(path: Path) -> Evaluation | None:
    return Evaluation(*np.load(path, allow_pickle=False)) if path.exists() else None
