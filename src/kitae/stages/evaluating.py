"""Held-out loss of a checkpoint, or of any Hugging Face folder, on a recipe's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kitae.errors import RecipeError
from kitae.stages.files import read_json
from kitae.stages.heads import head_options
from kitae.stages.job import Job
from kitae.stages.training import load_checkpoint, newest, prepared


def evaluate_job(job: Job, folder: Path | None) -> dict[str, Any]:
    """Loss in nats, what else the objective tells, and counts; of `folder` instead of the run, if given.

    Raises `WeightsError` when the folder holds no model that can be judged by this recipe.
    """
    from kitae.backend.table import select
    from kitae.checkpoint.model_folder import load_model
    from kitae.data.special import check_token
    from kitae.model.targets import check_answers
    from kitae.train.build import build_objective
    from kitae.train.evaluate import evaluate

    recipe = job.phases[-1][1]
    if recipe.data.heldout is None:
        raise RecipeError("data.heldout: there is no held-out text in this recipe; add it to evaluate")
    data = prepared(job, recipe)
    heldout = data.heldout
    assert heldout is not None
    backend = select(job.backend)
    device = backend.device
    model = load_checkpoint(newest(job), device) if folder is None else load_model(folder, device=device)
    if folder is not None:
        check_answers(
            str(folder), read_json(folder / "config.json"), recipe.objective, head_options(job).get("labels")
        )
    largest = data.card["largest_token"]
    # The folder may be another model than the text was packed for.
    check_token(largest["id"], largest["token"], largest["where"], model.config.vocab_size)
    micro = recipe.evaluation.micro_batch_size
    assert micro != "auto", "the recipe is resolved"
    found = evaluate(
        build_objective(model, recipe),
        heldout,
        micro_batch_size=micro,
        max_rows=recipe.evaluation.max_rows,
        backend=backend,
    )
    return {
        "loss": found.loss,
        **found.metrics,
        found.counted: found.tokens,
        "rows": len(found.row_tokens),
    }


def evaluation_line(found: Mapping[str, Any]) -> str:
    """What was found, for a person."""
    counted = next(name for name in ("tokens", "texts") if name in found)
    numbers = [
        f"{name.replace('_', ' ')} {write(found[name])}" for name, write in _SHOWN.items() if name in found
    ]
    return ", ".join(
        [
            f"held-out loss {found['loss']:.4f} nats/{counted[:-1]}",
            *numbers,
            f"{found[counted]:,} {counted} in {found['rows']:,} rows",
        ]
    )


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


_SHOWN: dict[str, Callable[[Any], str]] = {
    "perplexity": lambda value: f"{value:.2f}",
    "accuracy": _percent,
    "masked_accuracy": _percent,
    "next_sentence_accuracy": _percent,
    "f1_macro": lambda value: f"{value:.3f}",
    "confusion_matrix": lambda value: f"(rows are labels, columns predictions) {value}",
}
"""Metrics that a line shows, and how."""
