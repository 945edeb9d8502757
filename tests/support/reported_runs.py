"""Folders of whole runs for reports, with every file that kitae writes, without anything that trained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

BEGUN = "2026-11-30T19:00:00+00:00"
ENDED = "2026-11-30T19:04:36+00:00"
HELDOUT = {
    "loss_before": 3.25,
    "loss_after": 2.5,
    "perplexity_before": 25.79,
    "perplexity_after": 12.18,
    "tokens": 1018,
    "rows": 24,
    "rows_improved": 23,
    "mean_drop": 0.75,
    "standard_error": 0.03125,
}
PROOF = {
    "max_difference": 5.5e-05,
    "differences": [5.5e-05, 1e-05],
    "limit": 1e-4,
    "rounding": [0.0, 0.0],
    "prompts": [[1], [2]],
    "transformers": "5.24.0",
}


def recipe_values(**changes: Any) -> dict[str, Any]:
    """A resolved recipe, with every section that the report reads."""
    return {
        "kitae": 1,
        "name": "wee",
        "seed": 3,
        "runs": "runs",
        "objective": "causal-lm",
        "model": {"named": "smollm2-135m"},
        "data": {"train": [{"path": "/data/text"}], "sequence_length": 32},
        "optimizer": {"name": "adamw", "learning_rate": 0.001},
        "training": {"duration": "8 steps", "global_batch_size": 8, "precision": "fp32"},
        **changes,
    }


def start(step: int = 0, attempt: int = 1, steps: int = 8, time: str = BEGUN) -> dict[str, Any]:
    """A line of the metrics: an attempt begins."""
    return {
        "kind": "start",
        "step": step,
        "steps": steps,
        "attempt": attempt,
        "time": time,
        "backend": "cpu",
        "devices": 1,
        "precision": "fp32",
        "peak_flops": 1.5e11,
        "utilisation_formula": "flops / peak_flops",
    }


def update(step: int, **values: Any) -> dict[str, Any]:
    """A line of the metrics: an update of 256 positions, 200 of which are text."""
    seconds = 0.5 + 1 / (7 + step)
    return {
        "kind": "train",
        "step": step,
        "loss": 3.2 - 0.7 * step / (3 + step) + 1 / (97 + step * step % 13),
        "learning_rate": 1e-3 * (1 - step / 1000),
        "grad_norm": 1 + 1 / step,
        "step_seconds": seconds,
        "first_step": step == 1,
        "padded_tokens": 256,
        "real_tokens": 200,
        "total_padded_tokens": 256 * step,
        "total_real_tokens": 200 * step,
        "tokens_per_s": 256 / seconds,
        "real_tokens_per_s": 200 / seconds,
        "utilisation": 0.4 / (1 + 1 / step),
        "peak_memory_bytes": 500_000_000 + 1000 * step,
        **values,
    }


def evaluation(step: int, loss: float, **values: Any) -> dict[str, Any]:
    """A line of the metrics: a held-out loss."""
    return {"kind": "evaluation", "step": step, "loss": loss, "seconds": 0.25, "rows": 24, **values}


def metrics(steps: int = 8) -> list[dict[str, Any]]:
    """The lines of a training of so many updates, evaluated at both its ends and in the middle."""
    half = steps // 2
    return [
        start(steps=steps),
        evaluation(0, HELDOUT["loss_before"]),
        *(update(step) for step in range(1, half + 1)),
        evaluation(half, 2.75),
        *(update(step) for step in range(half + 1, steps + 1)),
        evaluation(steps, HELDOUT["loss_after"]),
    ]


def attempt(outcome: str = "finished", **values: Any) -> dict[str, Any]:
    """An entry of run.json."""
    ended = None if outcome == "running" else ENDED
    own = {"started": BEGUN, "ended": ended, "outcome": outcome, "pid": 1, "host": "node-1", "last": "prove"}
    return {**own, **values}


def results(**changes: Any) -> dict[str, Any]:
    """What a finished training says of itself."""
    return {
        "recipe": "wee",
        "objective": "causal-lm",
        "steps": 8,
        "real_tokens": 1600,
        "tokens_per_s": 420.5,
        "real_tokens_per_s": 328.5,
        "data_key": "d1",
        "heldout": HELDOUT,
        "model": {"model_type": "llama", "parameters": 134_515_008},
        "versions": {"kitae": "0.1.0", "torch": "2.13.0+cpu", "python": "3.11.7"},
        **changes,
    }


def accuracy() -> dict[str, Any]:
    """Plan against what came of it."""
    predicted = {"step_s": 0.5, "step_s_low": 0.4, "step_s_high": 0.8, "memory_bytes": 600_000_000}
    actual = {"step_s": 0.625, "memory_bytes": 500_000_000, "checkpoint_s": 0.02}
    return {"attempts": [{"attempt": 1, "phase": None, "steps": 7, "predicted": predicted, "actual": actual}]}


def finished(**changes: Any) -> dict[str, Any]:
    """All files of a finished run, by name; None leaves one out."""
    stages = {
        "export": {"key": "k", "finished": "2026-11-30T19:04:00+00:00"},
        "prove": {"key": "k", "finished": "2026-11-30T19:04:30+00:00"},
    }
    return {
        "run.json": {"kitae": "0.1.0", "attempts": [attempt(price_per_node_hour=21.5)], "stages": stages},
        "recipe.yaml": recipe_values(),
        "plan.json": {"parameters": 134_515_008, "estimate": {"sentence": "fits: 2% of the memory."}},
        "results.json": results(),
        "proof.json": PROOF,
        "samples.json": {"prompt": "Debian は", "before": "Debian はくらくら", "after": "Debian は自由"},
        "accuracy.json": accuracy(),
        "metrics.jsonl": metrics(),
        "saves.jsonl": [{"step": 4, "seconds": 0.5, "time": 1.0}, {"step": 8, "seconds": 0.25, "time": 2.0}],
        **changes,
    }


def write_reported(path: Path, **changes: Any) -> Path:
    """A finished run's folder; names of files are given with `_` for `.` and as they are."""
    files = finished(**{name.replace("__", "."): value for name, value in changes.items()})
    path.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        if value is not None:
            (path / name).write_text(_written(name, value), encoding="utf-8")
    return path


def _written(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if name.endswith(".yaml"):
        return yaml.safe_dump(value, allow_unicode=True, sort_keys=False)
    if name.endswith(".jsonl"):
        assert isinstance(value, Sequence)
        return "".join(json.dumps(line) + "\n" for line in value)
    return json.dumps(value)


def write_card(folder: Path, **changes: Any) -> Path:
    """A prepared folder with its data card."""
    folder.mkdir(parents=True, exist_ok=True)
    split = {"documents": 80, "tokens": 1760, "rows": 55, "padding": 0}
    source = {
        "path": "/data/text",
        "files": [{"bytes": 8794}],
        "documents": 80,
        "blank_lines": 3,
        "bad_lines": 1,
    }
    card = {
        "splits": {"train": split, "heldout": {**split, "documents": 12}},
        "sources": {"train": {"documents": 80, "from": [source]}},
        "heldout_duplicates_in_train": 2,
        "warnings": ["1 bad lines were left out"],
        **changes,
    }
    (folder / "card.json").write_text(json.dumps(card))
    return folder


def carried(page: str) -> Mapping[str, Any]:
    """What a page carries as JSON."""
    begin = page.index('id="kitae-report">') + len('id="kitae-report">')
    found: Mapping[str, Any] = json.loads(page[begin : page.index("</script>", begin)])
    return found
