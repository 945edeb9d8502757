"""Held-out loss of a checkpoint, or of any Hugging Face folder, on a recipe's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kitae.errors import RecipeError
from kitae.recipe.schema import Recipe
from kitae.stages.files import read_json
from kitae.stages.heads import head_options
from kitae.stages.job import Job
from kitae.stages.training import load_checkpoint, newest, prepared

if TYPE_CHECKING:
    from kitae.data.prepare import Prepared


def evaluate_job(job: Job, folder: Path | None) -> dict[str, Any]:
    """Loss in nats, what else the objective tells, and counts; of `folder` instead of the run, if given.

    Raises `WeightsError` when the folder holds no model that can be judged by this recipe.
    """
    from kitae.backend.table import select_aside
    from kitae.checkpoint.model_folder import load_model
    from kitae.data.special import check_token
    from kitae.model.targets import check_answers
    from kitae.train.build import build_objective
    from kitae.train.evaluate import evaluate

    recipe = job.phases[-1][1]
    data = _with_heldout(job, recipe)
    heldout = data.heldout
    assert heldout is not None
    backend = select_aside(job.backend)
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


def quantised_cost(job: Job, folder: Path | None) -> dict[str, Any]:
    """Loss and perplexity of the same rows with int8 matrices and without, and what int8 costs.

    Raises as `evaluate_job` does, and `RecipeError` for another objective than the next token.
    """
    from kitae.data.examples import Sample
    from kitae.stages.judging import cost, judge_rows
    from kitae.stages.text_model import Opening

    recipe = job.phases[-1][1]
    if recipe.objective != "causal-lm":
        raise RecipeError(f"--quantize: int8 is for decoders; this recipe's objective is {recipe.objective}")
    heldout = _with_heldout(job, recipe).heldout
    assert heldout is not None
    count = min(len(heldout), recipe.evaluation.max_rows or len(heldout))
    path = folder or newest(job).path
    found = {}
    for quantize in ("none", "int8"):
        opening = Opening(str(path), tokenizer=str(job.tokenizer_folder), quantize=quantize)
        rows = (heldout.read([Sample(number)]) for number in range(count))
        found[quantize] = judge_rows(opening, rows)
    return {**found["int8"], "quantize": "int8", **cost(found["int8"], found["none"])}


def _with_heldout(job: Job, recipe: Recipe) -> Prepared:
    """Prepared data that has held-out rows. Raises `RecipeError` where there are none."""
    if recipe.data.heldout is None:
        raise RecipeError("data.heldout: there is no held-out text in this recipe; add it to evaluate")
    return prepared(job, recipe)


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
