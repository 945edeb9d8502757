"""Held-out loss of a checkpoint, or of any Hugging Face folder, on a recipe's rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kitae.errors import RecipeError
from kitae.stages.job import Job
from kitae.stages.training import load_checkpoint, newest, prepared


def evaluate_job(job: Job, folder: Path | None) -> dict[str, Any]:
    """Loss (nats per token), perplexity, tokens and rows; `folder` is evaluated instead of the run."""
    from kitae.backend.table import select
    from kitae.checkpoint.model_folder import load_decoder
    from kitae.data.special import check_token
    from kitae.train.evaluate import evaluate

    if job.recipe.data.heldout is None:
        raise RecipeError("data.heldout: there is no held-out text in this recipe; add it to evaluate")
    data = prepared(job)
    heldout = data.heldout
    assert heldout is not None
    backend = select(job.backend)
    device = backend.device
    decoder = load_checkpoint(newest(job), device) if folder is None else load_decoder(folder, device=device)
    largest = data.card["largest_token"]
    # The folder may be another model than the text was packed for.
    check_token(largest["id"], largest["token"], largest["where"], decoder.config.vocab_size)
    micro = job.recipe.evaluation.micro_batch_size
    assert micro != "auto", "the recipe is resolved"
    found = evaluate(
        decoder,
        heldout,
        micro_batch_size=micro,
        max_rows=job.recipe.evaluation.max_rows,
        backend=backend,
        chunk_tokens=job.recipe.training.loss_chunk_tokens,
    )
    return {
        "loss": found.loss,
        "perplexity": found.perplexity,
        "tokens": found.tokens,
        "rows": len(found.row_tokens),
    }
